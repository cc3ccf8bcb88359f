"""The language model against the official one at small size: hidden states, log-probs, greedy runs, bistream."""

import pytest
import torch

from cosy_engine.llm.bistream import Bistream
from cosy_engine.llm.sampling import BELOW_ONE, inverse_cdf, nucleus, repetition_aware, without
from cosy_engine.llm.speech_lm import SpeechLM
from cosy_engine.model_files.weights import load_llm
from cosy_engine.scheduling.guard import SilenceLimiter
from cosy_engine.settings.model_spec import LlmSpec, SamplingSpec
from tests import golden_data

VERSIONS = ("v2", "v3")


def build(version: str) -> SpeechLM:
    facts = golden_data.facts(f"llm_{version}")
    qwen = facts["qwen2"]
    make = LlmSpec.v2 if version == "v2" else LlmSpec.v3
    spec = make(
        text_vocab=qwen["vocab_size"], width=qwen["hidden_size"], layers=qwen["num_hidden_layers"],
        heads=qwen["num_attention_heads"], kv_heads=qwen["num_key_value_heads"], head_dim=qwen["head_dim"],
        ffn_width=qwen["intermediate_size"], rms_eps=qwen["rms_norm_eps"], rope_theta=qwen["rope_theta"],
        speech_tokens=facts["speech_token_size"],
    )  # fmt: skip
    assert (spec.eos_id, spec.fill_id, spec.sos_row, spec.task_row) == (
        facts["eos_token"], facts["fill_token"], facts["sos"], facts["task_id"],
    )  # fmt: skip
    lm = SpeechLM(spec)
    load_llm(lm, dict(golden_data.weights(f"llm_{version}")), "golden")
    return lm.eval()


def case_inputs(version: str, case: str):
    data = golden_data.tensors(f"llm_{version}")
    text = data[f"{case}.text"][0].tolist()
    prompt_text = data[f"{case}.prompt_text"][0].tolist()
    return data, text, prompt_text, data[f"{case}.prompt_speech_token"][0].long()


def all_cases(needs):
    return [(v, c) for v in VERSIONS for c in golden_data.cases(f"llm_{v}", needs)]


@pytest.mark.parametrize("version,case", all_cases("lm_input"))
def test_prefill_equals_the_official_model(version, case):
    lm = build(version)
    data, text, prompt_text, speech = case_inputs(version, case)
    with torch.inference_mode():
        inputs = lm.prompt(prompt_text + text, speech)
        golden_data.near(inputs, data[f"{case}.lm_input"], 1e-6)
        state = lm.start(1, len(inputs), 1)
        hidden = lm.backbone(inputs[None], state.cache)[0]
        # golden README: fp32 floor 5e-6 (hidden) and 2e-5 (log-probs)
        golden_data.near(hidden, data[f"{case}.prefill_hidden"], 5e-5)
        golden_data.near(lm.log_probs(hidden[-1]), data[f"{case}.prefill_logp"], 2e-4)
        golden_data.near(lm.backbone(inputs[None])[0], hidden, 5e-5)  # without a cache


@pytest.mark.parametrize("version,case", all_cases("tf_tokens"))
def test_cached_steps_equal_the_official_model(version, case):
    lm = build(version)
    data, text, prompt_text, speech = case_inputs(version, case)
    with torch.inference_mode():
        inputs = lm.prompt(prompt_text + text, speech)
        forced = data[f"{case}.tf_tokens"].long()
        state = lm.start(1, len(inputs) + len(forced), 1)
        lm.feed(state, 0, inputs)
        for i, token in enumerate(forced):
            hidden = lm.feed(state, 0, lm.embed_speech(token[None]))
            golden_data.near(hidden[0], data[f"{case}.tf_hidden"][i], 5e-5)
            golden_data.near(lm.log_probs(hidden[0]), data[f"{case}.tf_logp"][i], 2e-4)


def run(lm, rows, sampler, capacity=400):
    """Decode several (inputs, min, max) side by side; returns the Progress of each."""
    state = lm.start(len(rows), max(len(r[0]) for r in rows) + capacity, capacity)
    state.forbid_early[:, lm.spec.speech_tokens] = True  # the official rule masks this one index
    for row, (inputs, low, high) in enumerate(rows):
        state.min_tokens[row], state.max_tokens[row] = low, high
        lm.prefill(state, row, inputs, sampler)
    while not state.done.all():
        lm.decode_step(state, sampler)
    return [lm.read(state, row) for row in range(len(rows))]


def greedy(log_probs, _state):
    return log_probs.argmax(-1)


@pytest.mark.parametrize("version", VERSIONS)
def test_greedy_runs_alone_and_in_one_batch_give_the_official_ids(version):
    lm = build(version)
    names = golden_data.cases(f"llm_{version}", "greedy_tokens")
    rows, expected = [], []
    for case in names:
        data, text, prompt_text, speech = case_inputs(version, case)
        with torch.inference_mode():
            rows.append((lm.prompt(prompt_text + text, speech), 2 * len(text), 20 * len(text)))
        expected.append((data[f"{case}.greedy_tokens"].tolist(), data[f"{case}.greedy_chosen"].tolist()))
    alone = [run(lm, [row], greedy)[0] for row in rows]
    for results in (alone, run(lm, rows, greedy)):
        for progress, (tokens, chosen) in zip(results, expected, strict=True):
            assert progress.tokens == tokens
            assert ([*progress.tokens, progress.stop_id] if progress.stop_id >= 0 else progress.tokens) == chosen


@pytest.mark.parametrize("version,case", all_cases("assembled_input"))
def test_bistream_feeds_and_yields_what_the_official_model_does(version, case):
    lm = build(version)
    facts = golden_data.facts(f"llm_{version}")
    data, text, prompt_text, speech = case_inputs(version, case)
    n_stop = facts["cases"][case]["n_stop"]
    fill, eos = lm.spec.fill_id, lm.spec.eos_id
    instruction = []
    if version == "v3":
        end = prompt_text.index(facts["endofprompt_id"]) + 1
        instruction, prompt_text = prompt_text[:end], prompt_text[end:]

    fed, outputs = [], []
    backbone = lm.backbone.forward

    def recording(x, cache=None, advance=None, context=None):
        hidden = backbone(x, cache, advance, context)
        fed.append(x[0].clone())
        outputs.append(lm.log_probs(hidden[0, -1]))
        return hidden

    lm.backbone.forward = recording

    def sampler(log_probs, _state):
        mixing = torch.isinf(log_probs[0, eos]) and not torch.isinf(log_probs[0, fill])
        if not mixing and stream.decoded_now() >= n_stop:
            return torch.tensor([eos])
        return log_probs.argmax(-1)

    with torch.inference_mode():
        state = lm.start(1, 32, 16)  # small on purpose: tables must grow
        stream = Bistream(
            lm, state, 0, instruction, prompt_text, speech, compatible=True, sampler=sampler,
            more_uniforms=lambda n: torch.zeros(1, n, 2),
        )  # fmt: skip
        stream.decoded_now = lambda: stream.decoded + int(state.step[0]) - stream.emitted
        tokens = [t for piece in ([i] for i in text) for chunk in stream.push(piece) for t in chunk]
        tokens += [t for chunk in stream.finish(400) for t in chunk]
    assert tokens == data[f"{case}.tokens"].tolist()
    golden_data.near(torch.cat(fed), data[f"{case}.assembled_input"], 1e-6)
    ends = data[f"{case}.step_lens"].cumsum(0).tolist()
    ours = dict(zip(torch.tensor([len(x) for x in fed]).cumsum(0).tolist(), outputs, strict=True))
    assert set(ours) <= set(ends)
    if f"{case}.step_logp" not in data:  # a trimmed case: what was fed and yielded is still compared
        return
    for end, expected in zip(ends, data[f"{case}.step_logp"], strict=True):
        golden_data.near(ours[end], expected, 2e-4)


@pytest.mark.parametrize("case", golden_data.cases("sampling", "scores"))
def test_both_draws_have_the_official_distributions(case):
    facts = golden_data.facts("sampling")
    spec = SamplingSpec(facts["top_p"], facts["top_k"], facts["win_size"], facts["tau_r"])
    data = golden_data.tensors("sampling")
    scores = data[f"{case}.scores"][None]
    ids, weights = nucleus(scores, spec)
    kept = int((weights > 0).sum())
    assert ids[0, :kept].tolist() == data[f"{case}.cand_ids"].tolist()
    golden_data.near(weights[0, :kept], data[f"{case}.cand_prob_raw"], 1e-6)
    golden_data.near(weights[0, :kept] / weights.sum(), data[f"{case}.cand_prob"], 1e-6)
    history = data[f"{case}.history"].long()[-spec.window :]
    repeats = (history[None] == ids[0, :kept, None]).sum(1) >= spec.window * spec.tau
    assert repeats.tolist() == data[f"{case}.fallback"].bool().tolist()
    redraws = data.get(f"{case}.fallback_index", torch.empty(0)).tolist()
    assert len(redraws) > 0 or not repeats.any()
    for index, expected in zip(redraws, data.get(f"{case}.fallback_dist", []), strict=True):
        golden_data.near(without(scores, ids[:, index])[0], expected, 1e-6)


def test_inverse_cdf_draws_each_index_as_often_as_its_weight():
    weights = torch.tensor([[0.0, 0.5, 0.0, 0.25, 0.25, 0.0]])
    uniform = (torch.arange(1000) + 0.5) / 1000  # a grid: counts are exact, not statistical
    drawn = inverse_cdf(weights.expand(1000, -1), uniform)
    assert torch.bincount(drawn, minlength=6).tolist() == [0, 500, 0, 250, 250, 0]
    assert inverse_cdf(weights, torch.tensor([BELOW_ONE], dtype=torch.float64)).item() == 4


def test_a_uniform_of_one_stays_within_what_may_be_drawn():
    log_probs = torch.tensor([[0.4, 0.3, 0.3, 0.0]]).log()
    ones, spec = torch.ones(1, 2), SamplingSpec()
    assert repetition_aware(log_probs, torch.full((1, 10), -1), ones, spec).item() == 2
    assert repetition_aware(log_probs, torch.full((1, 10), 2), ones, spec).item() == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_the_pipeline_gets_the_official_tokens_from_the_text(version):
    """LLM under the recorded sampling rule, then the limiter of silent tokens."""
    lm = build(version)
    facts, data = golden_data.facts(f"pipeline_{version}"), golden_data.tensors(f"pipeline_{version}")
    rule = facts["sampling_rule"]
    silent, codes = rule["forced_silent"], lm.spec.speech_tokens

    def sampler(log_probs, state):
        step = int(state.step[0])
        if step >= rule["stop_at"]:
            return torch.tensor([lm.spec.eos_id])
        if silent["start"] <= step < silent["end"]:
            return torch.tensor([silent["ids"][step % len(silent["ids"])]])
        return log_probs[:, :codes].argmax(-1)

    text, prompt_text = (data[name][0].tolist() for name in ("text", "prompt_text"))
    with torch.inference_mode():
        inputs = lm.prompt(prompt_text + text, data["prompt_speech_token"][0].long())
    progress = run(lm, [(inputs, 2 * len(text), 20 * len(text))], sampler)[0]
    assert progress.tokens == data["llm_tokens"].tolist()
    limiter = SilenceLimiter(frozenset(facts["silent_tokens"]), facts["max_silent_token_num"])
    assert limiter.keep(progress.tokens) == data["tokens"].tolist()
