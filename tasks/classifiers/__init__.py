"""Methods of stage `tune` without the backbone: logistic regression on TF–IDF or on sentence vectors."""
