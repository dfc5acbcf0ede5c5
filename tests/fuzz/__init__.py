"""Coverage-guided fuzzing: targets that say what must hold, and a driver that atheris runs them with."""
