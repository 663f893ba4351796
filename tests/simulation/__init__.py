"""The real storage code on simulated disks, from a seed: whole histories with crashes, power losses and faults.

Start with `world.py`: what a test does to a log, and the model that says what has to be left.
"""
