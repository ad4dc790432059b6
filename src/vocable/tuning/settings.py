"""The figures of a tuning that a reader may want to change; docs/tune.md says where each comes from."""

from __future__ import annotations

from vocable.tuning.questions import Kind

# Refusals
FEWEST_DOCUMENTS = 300  # fewer leave an exam that can show nothing

# Plan
RESERVE = 0.85  # share of the minutes that is planned
ENCODED = 0.4  # share of the planned time for encoding, at most
MOST_SEARCHED, FEWEST_SEARCHED = 20_000, 2_000  # documents of the exam's collection
LEAST_STEPS = 2  # at the first the learning rate is 0
FEWEST_STEPS, TRAINING_STEPS = 10, 250  # below the first a warning; the second is the most

# Exam
MOST_QUESTIONS, ONE_IN = 600, 5  # questions, at most, and documents for each
SHARED_PASSAGES = 0.2  # share of a document's passages in the exam from which it is not learned from
ENOUGH_ASKED = 50  # judged queries of people that decide alone

# Questions to learn from; with keywords the model alone gained as much, and the hybrid nothing.
LEARNED_KINDS: tuple[Kind, ...] = ("title", "sentence")
DRAWS = 4  # questions of a kind that a document gives, at most

# Training
QUESTIONS_PER_STEP, QUERY_LENGTH, DOCUMENT_LENGTH = 96, 64, 128
LEARNING_RATE = 1e-4
TEMPERATURE = 0.75  # standard deviations of a query's scores
QUERY_COST, DOCUMENT_COST = 0.03, 0.033  # weight of the regularizer times the FLOPS before the training
START_SHARE = 0.5  # of the weights before: the mean forgets less and gains more on queries of people
TEACHER_TEMPERATURE = 0.3  # standard deviations of the mean of the teachers' scores
