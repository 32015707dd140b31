"""Output for people and programs: facts, tables, messages, exit codes."""
