"""Faults, each caused on purpose: kills, full disks, damaged and hostile files, signals, NaN."""
