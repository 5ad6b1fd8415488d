"""The course: chapters, exercises with their checks, the ladder, drawings and exams."""
