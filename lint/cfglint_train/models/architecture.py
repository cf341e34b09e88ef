"""The shape of a model, as far as memory depends on it."""

from __future__ import annotations

from cfglint_train.foundation.frozen import Frozen
from cfglint_train.foundation.typed import Literal

ModelPart = Literal["decoder", "head", "embedding", "tower", "projector"]


class Linear(Frozen):
    """All modules of one leaf name, one shape and one part of the model: what adapters and quantisers act on.

    Widths are elements. A LoRA of rank r adds `count * max(1, experts) * r * (inputs + outputs)` parameters.
    """

    name: str
    """Leaf name as PEFT matches it: `q_proj`, `gate_proj`, `lm_head`, `embed_tokens`; for experts the parameter's."""
    inputs: int
    """For an embedding its rows; for experts the first of the two inner widths as they are stored."""
    outputs: int
    count: int  # type: ignore[assignment]
    """Modules (for experts: parameters) of this shape in the whole model."""
    part: ModelPart = "decoder"
    experts: int = 0
    """Experts that one 3-D parameter holds; 0 is an ordinary module. No `nn.Linear`: quantisers pass it by."""

    @property
    def elements(self) -> int:
        """Elements of all these weights together, without biases."""
        return self.count * max(1, self.experts) * self.inputs * self.outputs


class Experts(Frozen):
    """The mixture-of-experts part of a decoder."""

    count: int  # type: ignore[assignment]
    """Routed experts of one layer."""
    per_token: int
    intermediate: int
    """Width of one routed expert."""
    shared_intermediate: int = 0
    """Width of all shared experts of a layer together."""
    dense_layers: int = 0
    """Layers (from the first) that have a dense MLP instead."""
    every: int = 1
    """Of `every` layers in a row one is a mixture."""
    fused: bool = True
    """transformers >= 5 holds the experts of a layer as two 3-D parameters, which bitsandbytes does not quantise."""


class Latent(Frozen):
    """Multi-head latent attention (DeepSeek): ranks and head widths."""

    q_rank: int
    """0 where the query is not compressed."""
    kv_rank: int
    nope_dim: int
    rope_dim: int
    v_dim: int


class Heads(Frozen):
    """The heads of one layer. Widths are elements of one head."""

    query: int
    key: int
    """Of keys and values."""
    width: int
    values_are_keys: bool = False
    """Values are the keys before their norm (Gemma 4)."""


class Attention(Frozen):
    """What the attention of some models has beside `heads`, `kv_heads` and `head_dim`."""

    layers: int = 0
    """Layers with other heads than those: in Gemma 4 the ones that attend to the whole sequence."""
    heads: int = 0
    """Of those layers, as the next three."""
    kv_heads: int = 0
    head_dim: int = 0
    values_are_keys: bool = False
    """Those layers have no matrix for values."""
    starts: bool = False
    """The first layer is one of them."""
    ends: bool = False
    """The last layer is one of them."""
    reusing_layers: int = 0
    """Layers, from the last one back, that attend to keys and values of earlier ones."""
    index_heads: int = 0
    """Heads that choose the keys of a query (DeepSeek V3.2); 0 where every query has all keys."""
    index_dim: int = 0
    """Width of one of them."""


class Tower(Frozen):
    """The vision and audio encoders of a model, in parameters."""

    parameters: int
    """Without the projector."""
    projector_parameters: int
    layers: int
    hidden: int
    tokens: int | None = None
    """Tokens that one image puts into the sequence, where all images have as many."""
    kind: str = ""
    """Whose blocks the vision tower has (`models/towers.py`); empty where there is no formula for them."""
    heads: int = 0
    intermediate: int = 0
    patches: float = 0.0
    """Patches that the tower computes for one token of the sequence."""
    patch: int = 0
    """Pixels of a patch's side."""


class Recurrent(Frozen):
    """The mixer of recurrent or convolutional layers. Widths are elements."""

    kind: str
    """convolution, delta, mamba, mamba2 (`memory/layers/mixers.py`)."""
    inner: int
    """Width of the stream inside."""
    keys: int
    """All heads' keys; of Mamba-2 the inputs to the state of all groups, of Mamba the rank of the step sizes."""
    heads: int
    state: int
    """Of one head's key, or of the state."""


class Architecture(Frozen):
    """One model. Widths are elements; `parameters` counts every parameter once (tied weights once)."""

    id: str
    model_type: str
    """The decoder's `model_type` in transformers' configuration (`gemma3_text`, not `gemma3`)."""
    layers: int
    hidden: int
    vocab: int
    heads: int
    kv_heads: int
    head_dim: int
    """Width of one head; with latent attention of one query head."""
    intermediate: int
    tied: bool
    parameters: int
    tensors: int
    """Parameter tensors of the whole model."""
    largest_tensor: int
    """Elements of the largest parameter tensor."""
    layer_parameters: int
    """Elements of the largest decoder layer."""
    experts: Experts | None = None
    latent: Latent | None = None
    tower: Tower | None = None
    attention: Attention | None = None
    streams: int = 1
    """Copies of the residual stream, which the layers pass on side by side (Gemma 3n)."""
    sparse_layers: int = 0
    """Layers, from the first one on, whose MLP keeps a share of its gate only (Gemma 3n)."""
    window: int | None = None
    """Sliding attention window in tokens, where some layers have one."""
    full_attention_layers: int | None = None
    """Layers with attention over the whole sequence; None where all have it."""
    recurrent_layers: int = 0
    """Layers whose mixer is recurrent or convolutional (Mamba, gated delta, short convolution)."""
    recurrent: Recurrent | None = None
    """What that mixer is; None where there is no formula for it."""
    gated: bool = True
    """Three MLP matrices (SwiGLU, GeGLU) rather than two."""
    dtype: str | None = None
    """The number format of the published weights."""
    quantization: str | None = None
    """How the published weights are already quantised (gptq, awq, nf4, mxfp4, nvfp4)."""
    remote_code: bool = False
    """transformers has no class of its own for it."""
    context: int | None = None
    """Longest sequence that the model was made for."""
    linears: tuple[Linear, ...] = ()
    """Every linear layer, embedding and fused expert parameter; empty where the shapes are not known."""
    expert_parameters: int = 0
    """Elements of all routed experts."""
    active_parameters: int | None = None
    """Parameters that one token passes through; None where all are."""
    counted: Literal["built", "formula"] = "formula"
    """built: counted on the model class itself (meta device); formula: closed form over the dimensions."""
    variant: str = ""
    """The formula's name where models of one `model_type` have different layers (`falcon_new`)."""
    whole_type: str = ""
    """The whole model's `model_type` where that is not the decoder's: what a framework compares."""
    source: str = ""
    """Where the dimensions come from."""
    folder: str = ""
    """The folder by whose name it was found, where that is all that is known of the model."""

    def __hash__(self) -> int:
        """Of few fields, because every estimate looks up what was derived for its model."""
        return hash((self.id, self.layers, self.parameters))

    @property
    def formula(self) -> str:
        """The row of `memory/layers/families.py` that describes its layers."""
        return self.variant or self.model_type

    @property
    def outer_type(self) -> str:
        """The `model_type` at the top of the model's configuration (`gemma3`, not `gemma3_text`)."""
        return self.whole_type or self.model_type

    def list_linear_modules(self, *names: str, parts: tuple[ModelPart, ...] = ("decoder",)) -> tuple[Linear, ...]:
        """The ordinary linear modules of the given parts (with one of `names`, if any are given).

        PEFT's `all-linear` is every linear layer but the head: parts decoder, tower and projector.
        """
        return tuple(
            linear
            for linear in self.linears
            if linear.part in parts and not linear.experts and (not names or linear.name in names)
        )

    @property
    def embedding_parameters(self) -> int:
        """Elements of the embeddings and, where it is not tied, of the head."""
        embeddings = sum(linear.elements for linear in self.linears if linear.part == "embedding")
        heads = sum(linear.elements for linear in self.linears if linear.part == "head")
        if not embeddings:
            embeddings = heads = self.vocab * self.hidden
        return embeddings if self.tied else embeddings + heads


def get_heads(architecture: Architecture, is_different: bool = False) -> Heads:
    """The heads of a layer; `other`: of one that `Architecture.attention` counts among its layers."""
    attention = architecture.attention
    if is_different and attention is not None:
        return Heads(attention.heads, attention.kv_heads, attention.head_dim, attention.values_are_keys)
    return Heads(architecture.heads, architecture.kv_heads, architecture.head_dim)
