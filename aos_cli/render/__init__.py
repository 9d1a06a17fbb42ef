"""Result value to text, pure: nothing here reads a file, a clock, a terminal or the environment."""
