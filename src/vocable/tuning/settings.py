"""The figures of a tuning that a reader may want to change; docs/tune.md says where each comes from."""

from __future__ import annotations

from vocable.tuning.questions import Kind

# Refusals
FEWEST_DOCUMENTS = 300  # with fewer documents the exam can show nothing

# Plan
RESERVE = 0.85  # share of the minutes that is planned
ENCODED = 0.4  # largest share of the planned time for encoding
MOST_SEARCHED, FEWEST_SEARCHED = 20_000, 2_000  # documents of the exam's collection
LEAST_STEPS = 2  # in the first step the learning rate is 0
FEWEST_STEPS, TRAINING_STEPS = 10, 250  # fewest steps without a warning, and most steps

# Exam
MOST_QUESTIONS, ONE_IN = 600, 5  # most questions, and documents per question
SHARED_PASSAGES = 0.2  # a document with a larger share of its passages in the exam is not learned from
ENOUGH_ASKED = 10  # number of judged queries of people that decide in place of the made questions
QUESTION_DEVIATION = 0.15  # standard deviation of a question's difference of nDCG@10, in the study of 16 collections

# Mean difference of nDCG@10 on queries of people in the study, with its interval; docs/experiments/tuning.md
EXPECTED_GAIN = "+0.010 [+0.003, +0.018] alone, +0.007 [+0.002, +0.012] with BM25, on 16 collections"

# Kinds of questions to learn from; with keywords the model alone gained the same, and the hybrid gained nothing.
LEARNED_KINDS: tuple[Kind, ...] = ("title", "sentence")
DRAWS = 4  # most questions of a kind that a document gives

# Training
QUESTIONS_PER_STEP, QUERY_LENGTH, DOCUMENT_LENGTH = 96, 64, 128
MICRO_BATCH = 16  # questions and documents in memory at once, with gradients of the whole step
LEARNING_RATE = 1e-4
TEMPERATURE = 0.75  # standard deviations of a query's scores
QUERY_COST, DOCUMENT_COST = 0.03, 0.033  # weight of the regularizer times the FLOPS before the training
START_SHARE = 0.5  # share of the initial weights: their mean forgets less and gains more on queries of people
