"""Adapters of peft (LoRA), which are added to the weights that they change when a model is loaded."""

from __future__ import annotations

from transformers import PreTrainedModel


def merge_adapters(model: PreTrainedModel) -> None:
    """Add the adapters of a model to its weights, in place; do nothing for a model without adapters."""
    if not getattr(model, "_hf_peft_config_loaded", False):
        return
    from peft.tuners.tuners_utils import BaseTunerLayer

    for name, module in list(model.named_modules()):
        if isinstance(module, BaseTunerLayer):
            module.merge(safe_merge=True)
            model.set_submodule(name, module.get_base_layer())
    model._hf_peft_config_loaded = False
    model._weight_conversions = None  # else the saved weights would have the names of the adapter
    del model.peft_config
