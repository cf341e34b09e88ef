"""Rules: one module each, in folders by family."""
