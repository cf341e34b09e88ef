"""Estimate of every phase's peak, from a plan, an architecture and the hardware. Independent of frameworks."""
