"""Populations: several members, such as seeds, trained in lockstep as one program."""
