"""Model architectures: the dimensions that memory depends on."""

from __future__ import annotations

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Literal

ModelPart = Literal["decoder", "head", "embedding", "tower", "projector"]


class Linear(Frozen):
    """All modules that share a leaf name, a shape and a part of the model, as adapters and quantizers select them.

    Widths are elements. A LoRA of rank r adds `count * max(1, experts) * r * (inputs + outputs)` parameters.
    """

    name: str
    """Leaf name as PEFT matches it: `q_proj`, `gate_proj`, `lm_head`, `embed_tokens`; for experts, the parameter's
    name.
    """
    inputs: int
    """Input width; for an embedding, its rows; for experts, the first dimension of each matrix as stored."""
    outputs: int
    count: int  # type: ignore[assignment]
    """Number of modules (for experts: parameters) of this shape in the whole model."""
    part: ModelPart = "decoder"
    experts: int = 0
    """Experts in one 3-D parameter, which quantizers skip because it is not an `nn.Linear`; 0 for a module."""

    @property
    def elements(self) -> int:
        """Elements of all these weights together, without biases."""
        return self.count * max(1, self.experts) * self.inputs * self.outputs


class Experts(Frozen):
    """The mixture-of-experts part of a decoder."""

    count: int  # type: ignore[assignment]
    """Number of routed experts in one layer."""
    per_token: int
    intermediate: int
    """Width of one routed expert."""
    shared_intermediate: int = 0
    """Total width of all shared experts of a layer."""
    dense_layers: int = 0
    """Number of leading layers that have a dense MLP instead."""
    every: int = 1
    """Period of the mixture layers: 2 if every second layer is a mixture."""
    fused: bool = True
    """True if a layer's experts are two 3-D parameters (transformers >= 5), which bitsandbytes does not quantize."""


class Latent(Frozen):
    """Multi-head latent attention (DeepSeek): ranks and head widths."""

    q_rank: int
    """Rank of the compressed query; 0 if the query is not compressed."""
    kv_rank: int
    nope_dim: int
    rope_dim: int
    v_dim: int


class Heads(Frozen):
    """The heads of one layer. `width` is the number of elements in one head."""

    query: int
    key: int
    """Number of key heads, which is also the number of value heads."""
    width: int
    values_are_keys: bool = False
    """True if values are the keys before their norm (Gemma 4)."""


class Attention(Frozen):
    """Attention features that only some models have, in addition to `heads`, `kv_heads` and `head_dim`."""

    layers: int = 0
    """Number of layers with different heads; in Gemma 4, the layers that attend to the whole sequence."""
    heads: int = 0
    """Number of query heads in these layers; the next three fields describe the same layers."""
    kv_heads: int = 0
    head_dim: int = 0
    values_are_keys: bool = False
    """True if these layers have no matrix for values."""
    starts: bool = False
    """True if the first layer is one of these layers."""
    ends: bool = False
    """True if the last layer is one of these layers."""
    reusing_layers: int = 0
    """Number of final layers that attend to the keys and values of earlier layers."""
    index_heads: int = 0
    """Indexer heads, which select the keys for each query (DeepSeek V3.2); 0 if each query attends to all keys."""
    index_dim: int = 0
    """Width of an indexer head."""


class Tower(Frozen):
    """The vision and audio encoders of a model."""

    parameters: int
    """Parameters of the encoders, without the projector."""
    projector_parameters: int
    layers: int
    hidden: int
    tokens: int | None = None
    """Tokens that one image adds to the sequence, if all images add the same number."""
    kind: str = ""
    """Kind of the vision tower's blocks (`models/towers.py`); empty if there is no formula for them."""
    heads: int = 0
    intermediate: int = 0
    patches: float = 0.0
    """Patches that the tower processes per image token of the sequence."""
    patch: int = 0
    """Side of a patch in pixels."""


class Recurrent(Frozen):
    """The mixer of recurrent or convolutional layers. Widths are elements."""

    kind: str
    """Kind of mixer: convolution, delta, mamba or mamba2 (`memory/layers/mixers.py`)."""
    inner: int
    """Inner width of the mixer."""
    keys: int
    """Width of the keys of all heads; for Mamba-2, of the inputs to the state of all groups; for Mamba, the rank of the
    step sizes.
    """
    heads: int
    state: int
    """Width of one head's key, or of the state."""


class Architecture(Frozen):
    """A model. Widths are in elements; `parameters` counts tied weights once."""

    id: str
    model_type: str
    """The decoder's `model_type` in transformers' configuration (`gemma3_text`, not `gemma3`)."""
    layers: int
    hidden: int
    vocab: int
    heads: int
    kv_heads: int
    head_dim: int
    """Width of one head; with latent attention, of one query head."""
    intermediate: int
    tied: bool
    parameters: int
    tensors: int
    """Number of parameter tensors in the whole model."""
    largest_tensor: int
    """Elements of the largest parameter tensor."""
    layer_parameters: int
    """Elements of the largest decoder layer."""
    experts: Experts | None = None
    latent: Latent | None = None
    tower: Tower | None = None
    attention: Attention | None = None
    streams: int = 1
    """Number of parallel residual streams (Gemma 3n)."""
    sparse_layers: int = 0
    """Number of leading layers whose MLP zeroes a share of its gate activations (Gemma 3n)."""
    window: int | None = None
    """Sliding attention window in tokens, if some layers have one."""
    full_attention_layers: int | None = None
    """Number of layers with attention over the whole sequence; None if all layers have it."""
    recurrent_layers: int = 0
    """Number of layers whose mixer is recurrent or convolutional (Mamba, gated delta, short convolution)."""
    recurrent: Recurrent | None = None
    """Mixer of the recurrent layers; None if there are none or there is no formula for it."""
    gated: bool = True
    """True if the MLP has three matrices (SwiGLU, GeGLU) rather than two."""
    dtype: str | None = None
    """Number format of the published weights."""
    quantization: str | None = None
    """Quantization of the published weights (gptq, awq, nf4, mxfp4, nvfp4)."""
    remote_code: bool = False
    """True if transformers has no class for the model."""
    context: int | None = None
    """Longest sequence that the model supports, in tokens."""
    linears: tuple[Linear, ...] = ()
    """Every linear layer, embedding and fused expert parameter; empty if the shapes are unknown."""
    expert_parameters: int = 0
    """Elements of all routed experts."""
    active_parameters: int | None = None
    """Number of parameters used for one token; None if all parameters are used."""
    counted: Literal["built", "formula"] = "formula"
    """Source of the counts: `built` if counted on the model class (meta device), `formula` if in closed form."""
    variant: str = ""
    """Name of the formula if models of one `model_type` have different layers (`falcon_new`)."""
    whole_type: str = ""
    """The whole model's `model_type`, which frameworks compare, if it differs from the decoder's."""
    source: str = ""
    """Origin of the dimensions: a file, or the catalogue's sources."""
    folder: str = ""
    """Folder whose name alone identified the model; otherwise empty."""

    def __hash__(self) -> int:
        """Hash a few fields only, because every estimate uses the architecture as a cache key."""
        return hash((self.id, self.layers, self.parameters))

    @property
    def formula(self) -> str:
        """Key of the row of `memory/layers/families.py` that describes the layers."""
        return self.variant or self.model_type

    @property
    def outer_type(self) -> str:
        """`model_type` at the top of the model's configuration (`gemma3`, not `gemma3_text`)."""
        return self.whole_type or self.model_type

    def list_linear_modules(self, *names: str, parts: tuple[ModelPart, ...] = ("decoder",)) -> tuple[Linear, ...]:
        """Return the modules in `parts` of the model, restricted to those named in `names` if there are any.

        Fused expert parameters are excluded, because they are not modules.

        PEFT's `all-linear` selects every linear layer except the head: parts decoder, tower and projector.
        """
        return tuple(
            linear
            for linear in self.linears
            if linear.part in parts and not linear.experts and (not names or linear.name in names)
        )

    @property
    def embedding_parameters(self) -> int:
        """Elements of the embeddings, and of the head if it is not tied to them."""
        embeddings = sum(linear.elements for linear in self.linears if linear.part == "embedding")
        heads = sum(linear.elements for linear in self.linears if linear.part == "head")
        if not embeddings:
            embeddings = heads = self.vocab * self.hidden
        return embeddings if self.tied else embeddings + heads


def get_heads(architecture: Architecture, is_different: bool = False) -> Heads:
    """Return the heads of a layer; with `is_different`, of a layer that `Architecture.attention` describes."""
    attention = architecture.attention
    if is_different and attention is not None:
        return Heads(attention.heads, attention.kv_heads, attention.head_dim, attention.values_are_keys)
    return Heads(architecture.heads, architecture.kv_heads, architecture.head_dim)
