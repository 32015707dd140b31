"""Output for people and programs: facts, tables, messages, exit codes.

output.py      facts, tables and progress
messages.py    errors in one line
exit_codes.py  exit codes, for scripts, and warnings that decide them
"""
