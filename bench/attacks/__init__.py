"""The parts of bench/attacks.py: the stage, the healthy client, the wire, and the attacks by kind."""
