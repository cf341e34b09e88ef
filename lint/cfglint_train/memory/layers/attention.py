"""Attention of a layer, as in transformers."""

from __future__ import annotations

from cfglint_train.memory.layers.norms import Norms


class Attention(Norms):
    """Builder of the attention of a layer."""

    __slots__ = ()

    def rotate(self, x: int) -> int:
        """Build x * cos + rotate_half(x) * sin; the layer saves nothing because cos and sin belong to the model."""
        tape = self.tape
        width, element = tape.width[x], tape.element[x]
        if "rotary" in self.mode.liger:
            return x
        if self.family.rotary == "complex":  # pairs of fp32 numbers times a constant
            return self.cast(tape.apply((self.cast(x, 4),), width, 4), element)
        if self.family.rotary == "fp32" or (self.mode.autocast and self.mode.weight == 4):
            element = 4  # the format of cos and sin
        straight = tape.apply((x,), width, element)
        turned = tape.apply((tape.apply((x,), width, tape.element[x]),), width, element)
        total = tape.apply((straight, turned), width, element, alias=True)
        return self.cast(total, tape.element[x]) if self.family.rotary == "fp32" else total

    def attend(self, query: int, key: int, value: int, out_width: float) -> int:
        """Build softmax(q k^T) v."""
        tape, mode = self.tape, self.mode
        heads, input_element = self.heads.query, tape.element[query]
        element = 2 if mode.autocast else input_element
        query, key, value = self.cast(query, element), self.cast(key, element), self.cast(value, element)
        if mode.attention == "flash":
            rows = tape.add_tensor(heads, 4, needs=False)
            return tape.apply(
                (query, key, value),
                out_width,
                element,
                saves=(query, key, value, rows),
                saves_output=True,
                mark="attention",
            )
        if mode.attention == "math":
            return self.attend_in_fp32(query, key, value, out_width)
        key = self.repeat_heads(key, tape.width[query])
        value = self.repeat_heads(value, out_width)
        if mode.attention == "efficient":
            rows = tape.add_tensor(heads, 4, needs=False)
            bias = tape.add_tensor(mode.sequence, element, needs=False)
            saves = (query, key, value, rows, bias)
            return tape.apply((query, key, value), out_width, element, saves=saves, saves_output=True, mark="attention")
        # Views of one fused output do not have the layout that the product needs, so it copies them.
        query, key, value = (
            self.copy(item, tape.width[item]) if item in tape.storage_of else item for item in (query, key, value)
        )
        if self.family.scores_fp32:  # autocast undoes the cast
            wide = 2 if mode.autocast else 4
            query, key = self.cast(self.cast(query, 4), wide), self.cast(self.cast(key, 4), wide)
            element = wide
        scores = heads * mode.sequence
        weights = tape.apply((query, key), scores, element, saves=(query, key))
        weights = tape.apply((weights,), scores, element)  # times the scale
        if self.family.softcap:
            weights = tape.apply((weights,), scores, element)
            weights = tape.apply((weights,), scores, element, saves_output=True)
            weights = tape.apply((weights,), scores, element)
        # Autocast computes a softmax in fp32 unless the code names a format, as in gpt-oss.
        precise = 4 if self.family.softmax_fp32 or (mode.autocast and not self.family.sinks) else element
        raw = weights
        if self.family.sinks:  # joined with the learned scores; then the maximum is subtracted
            joined = tape.apply((raw,), scores, element, alias=True)
            weights = tape.apply((joined,), scores, element, alias=True)
        weights = tape.apply((self.cast(weights, precise),), scores, precise, saves_output=True)
        weights = self.cast(weights, input_element)
        tape.hold(query, key, value, raw)  # local variables of the function
        if self.family.attention_dropout:
            kept = tape.add_tensor(scores, 1, needs=False)
            weights = tape.apply((weights,), scores, input_element, saves=(kept,))
        self.returned = (weights,)
        element = 2 if mode.autocast else input_element
        weights = self.cast(weights, element)
        if self.family.sinks:  # the probabilities without the sink are a part of the softmax's result
            weights = tape.view(weights, scores)
        out = tape.apply((weights, value), out_width, element, saves=(weights, value))
        return tape.apply((out,), out_width, element)  # heads side by side again

    def attend_in_fp32(self, query: int, key: int, value: int, out_width: float) -> int:
        """Build attention in fp32, as in torch's `_scaled_dot_product_attention_math`.

        Queries and keys are first multiplied by the square root of the scale. The products copy keys and values for
        each query head.
        """
        tape, scores = self.tape, self.heads.query * self.mode.sequence
        input_element, width = tape.element[query], tape.width[query]
        wide = [self.cast(item, 4) for item in (query, key, value)]
        query, key = (tape.apply((item,), tape.width[item], 4) for item in wide[:2])
        key = tape.apply((key,), width, 4)
        weights = tape.apply((query, key), scores, 4, saves=(query, key))
        weights = tape.apply((tape.apply((weights,), scores, 4, alias=True),), scores, 4, saves_output=True)
        value = tape.apply((wide[2],), out_width, 4)
        return self.cast(tape.apply((weights, value), out_width, 4, saves=(weights, value)), input_element)

    def repeat_heads(self, x: int, width: float) -> int:
        """Build copies of keys or values for each query head, unless `x` already has `width` values per token."""
        tape = self.tape
        return x if tape.width[x] >= width else tape.apply((x,), width, tape.element[x])

    def build_attention(self, x: int) -> int:
        """Build queries, keys, values, attention and the output matrix."""
        family, shape, heads, tape, leaves = self.family, self.architecture, self.heads, self.tape, self.leaves
        if family.latent:
            return self.build_latent_attention(x)
        fused, gate = x, None
        query_width, key_width = heads.query * heads.width, heads.key * heads.width
        if family.fused_query != "none":
            fused = self.apply_linear(x, query_width + 2 * key_width, leaves.fused)
            part = tape.view if family.fused_query == "views" else self.copy
            query, key, value = part(fused, query_width), part(fused, key_width), part(fused, key_width)
            if family.fused_query == "broadcast":
                key, value = self.copy(key, query_width), self.copy(value, query_width)
        else:
            gated = family.output_gate == "query"
            query = self.apply_linear(x, query_width * (2 if gated else 1), leaves.query)
            if gated:
                gate = self.copy(query, query_width)
                query = tape.view(query, query_width)
            if self.kind.reuses_keys:
                key, value = (tape.add_external_tensor(key_width, tape.element[query]) for _ in range(2))
            else:
                key, value = self.project_keys(x)
        if family.output_gate not in ("", "query"):
            gate = self.apply_linear(x, heads.query if family.gate_per_head else query_width, family.output_gate)
        for step in ("rotary", "norm") if family.rotary_first else ("norm", "rotary"):
            if step == "norm" and family.query_norm != "none":
                query = self.normalize_query(query, heads.query)
                if not self.kind.reuses_keys:
                    key = self.normalize_query(key, heads.key)
                    value = self.normalize_value(value)
            elif step == "rotary" and self.kind.reuses_keys:
                query = self.rotate(query)
            elif step == "rotary" and family.rotary != "none":
                plain: tuple[int, ...] = (query, key)
                if family.joined or family.rotary == "complex":  # both in fp32 first
                    wide = self.cast(query, 4), self.cast(key, 4)
                    plain = *plain, *wide
                    query, key = (self.rotate(item) for item in wide)
                    query, key = self.cast(query, tape.element[fused]), self.cast(key, tape.element[fused])
                else:
                    query, key = self.rotate(query), self.rotate(key)
                tape.hold(*plain)
        out = self.attend(query, key, value, query_width)
        if (
            family.rotary == "part"
            and self.mode.attention != "efficient"
            and not (self.mode.attention == "eager" and not family.sinks)
        ):
            out = self.copy(out, query_width)
        if family.joined and self.mode.attention == "flash":
            out = self.copy(out, query_width)
        if gate is not None:
            curve = tape.apply((gate,), tape.width[gate], tape.element[gate], saves_output=True)
            out = tape.apply((out, curve), query_width, tape.element[out], saves=(out, curve))
        out = self.apply_linear(out, shape.hidden, leaves.out)
        tape.hold(x)
        return out

    def project_keys(self, x: int) -> tuple[int, int]:
        """Build keys and values, neither normalized nor rotated."""
        heads, leaves = self.heads, self.leaves
        key = self.apply_linear(x, heads.key * heads.width, leaves.key)
        return key, key if heads.values_are_keys else self.apply_linear(x, heads.key * heads.width, leaves.value)

    def normalize_query(self, x: int, heads: int) -> int:
        """Build the family's norm of queries or keys."""
        if self.family.query_norm == "bare":
            return self.cast(self._normalize_in_fp32(x, heads), self.tape.element[x])
        return self.apply_norm(x, heads=heads if self.family.query_norm == "head" else 1)

    def normalize_value(self, x: int) -> int:
        """Build Gemma 4's norm of values, without a weight."""
        heads = self.heads.key
        return self.cast(self._normalize_in_fp32(x, heads), self.tape.element[x]) if self.family.value_norm else x

    def build_reused_keys(self, x: int) -> tuple[int, int]:
        """Build the keys and values that later layers reuse from the input `x` of attention."""
        key, value = self.project_keys(x)
        return self.rotate(self.normalize_query(key, self.heads.key)), self.normalize_value(value)

    def build_latent_attention(self, x: int) -> int:
        """Build DeepSeek's multi-head latent attention (MLA).

        Queries and keys have a rotated and an unrotated part, both from compressed vectors.
        """
        shape, tape = self.architecture, self.tape
        latent = shape.latent
        assert latent is not None
        heads, width = shape.heads, latent.nope_dim + latent.rope_dim
        compressed = x
        if latent.q_rank:
            compressed = self.apply_norm(self.apply_linear(x, latent.q_rank, "q_a_proj"))
            query = self.apply_linear(compressed, heads * width, "q_b_proj")
        else:
            query = self.apply_linear(x, heads * width, "q_proj")
        low = self.apply_linear(x, latent.kv_rank + latent.rope_dim, "kv_a_proj_with_mqa")
        inner = tape.apply((low,), latent.kv_rank, tape.element[low], alias=True)
        pair = self.apply_linear(self.apply_norm(inner), heads * (latent.nope_dim + latent.v_dim), "kv_b_proj")
        element = tape.element[query]
        rotated = tape.add_tensor(heads * latent.rope_dim, element, needs=False)
        states = tape.apply((query,), heads * width, element)
        key = tape.apply((pair,), heads * width, element)
        value = tape.view(pair, heads * latent.v_dim)
        frame = (x, compressed, query, low, rotated, states, key, value)
        self.choose_keys()
        tape.hold(*frame)
        if self.mode.attention != "flash":
            out = self.attend(states, key, value, heads * latent.v_dim)
            tape.hold(*frame)
        else:  # the kernel pads values to the width of keys
            padded = tape.apply((value,), heads * width, element)
            out = self.attend(states, key, padded, heads * width)
            tape.hold(*frame)
            out = tape.apply((out,), heads * latent.v_dim, element)
        return self.apply_linear(out, shape.hidden, "o_proj")

    def choose_keys(self) -> None:
        """Build DeepSeek V3.2's indexer, which chooses the keys of each query without gradients.

        The indexer computes the scores of each of its heads with all keys, their product with the scale, its relu, the
        sum over heads, and a mask. With several sequences, the product copies a sequence's keys for each of its
        queries. Local variables hold queries and keys, their rotated parts, and both joined (transformers 5.23,
        modeling_deepseek_v32.py).
        """
        tape, mode, attention, latent = self.tape, self.mode, self.architecture.attention, self.architecture.latent
        if attention is None or latent is None or not attention.index_heads:
            return
        heads, width, rope = attention.index_heads, attention.index_dim, latent.rope_dim
        element = 2 if mode.autocast else 4  # autocast undoes the cast to fp32
        low = 2 if mode.autocast else mode.weight
        wide = 4 if mode.autocast and mode.weight == 4 else low  # the format of cos and sin
        names = tuple(
            tape.add_tensor(count * each, size, needs=False)
            for count in (heads, 1)
            for each, size in ((width, low), (rope, wide), (width, wide))
        )
        key_copies = (tape.add_tensor(heads * width, 4, needs=False),) if mode.autocast and wide == 2 else ()
        query = tape.add_tensor(heads * width, element, needs=False)
        keys = tape.add_tensor(width * mode.sequence if mode.several else width, element, needs=False)
        scores = tape.apply((query, keys), heads * mode.sequence, element)
        tape.hold(*key_copies)
        for _ in range(2):
            scores = tape.apply((scores,), heads * mode.sequence, element)
        tape.hold(*names)
        tape.apply((tape.apply((scores,), mode.sequence, 4),), mode.sequence, 1)
