"""Mutations: programs that change a config before its framework reads it."""
