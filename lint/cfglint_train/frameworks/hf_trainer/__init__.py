"""Code shared by frameworks that train with the Hugging Face Trainer and accelerate: keys, lenses and inference.

Sources: transformers 4.57.1 and 5.8.0 `training_args.py`, `trainer.py`, `trainer_optimizer.py`,
`integrations/deepspeed.py`; accelerate 1.3.0 to 1.15.0 `accelerator.py`, `utils/deepspeed.py`, `utils/fsdp_utils.py`,
`utils/dataclasses.py`.
"""
