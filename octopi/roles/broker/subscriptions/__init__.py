"""Durable subscriptions on a broker: what drives their machines (`octopi.subscriptions`)."""
