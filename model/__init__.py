"""The method of the paper: soft prompts on a frozen backbone, their meta-training and tuning."""
