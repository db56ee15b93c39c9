"""Fault injection: kills, full disks, damaged and hostile files, signals and NaN."""
