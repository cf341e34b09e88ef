"""Mutations: programs that change a configuration before its framework reads it."""
