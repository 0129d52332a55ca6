"""Asks what a user of the anthropic library would ask, and prints a line of JSON for each check."""

import json
import sys

import anthropic

api, model = sys.argv[1], sys.argv[2]
translated = sys.argv[3:] == ["translated"]
client = anthropic.Anthropic(base_url=api, api_key="none", max_retries=0, timeout=30)
tools = [{"name": "weather", "description": "of a place", "input_schema": {
    "type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}}]
system = [{"type": "text", "text": "You are terse.", "cache_control": {"type": "ephemeral"}}]
messages = [{"role": "user", "content": "What is the weather in Łódź? 🌍"}]
pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def check(name):
    def run(f):
        error = ""
        try:
            f()
        except Exception as e:  # every failure is a result
            error = f"{type(e).__name__}: {e}"
        print(json.dumps({"name": name, "error": error}))
    return run


def create(**more):
    return client.messages.create(**{"model": model, "system": system, "messages": messages, "max_tokens": 20, **more})


def stream(**more):
    """The message a stream adds up to, and the names of its events."""
    with client.messages.stream(**{"model": model, "system": system, "messages": messages, "max_tokens": 20, **more}) as s:
        names = [e.type for e in s]
        return s.get_final_message(), names


def inputs(usage):
    return usage.input_tokens + (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)


@check("models")
def _():
    assert model in [m.id for m in client.models.list()]


@check("message")
def _():
    r = create(max_tokens=7)
    assert r.content[0].text and r.stop_reason == "max_tokens" and r.usage.output_tokens == 7 and inputs(r.usage) > 7, r


@check("streamed message")
def _():
    whole = create()
    r, names = stream()
    assert r.content[0].text == whole.content[0].text and r.stop_reason == "max_tokens", (r, whole)
    assert r.usage.output_tokens == 20 and inputs(r.usage) == inputs(whole.usage), (r, whole)
    for name in ["message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop"]:
        assert name in names, names


@check("tool call and its result")
def _():
    whole = create(tools=tools, tool_choice={"type": "any"})
    r, _ = stream(tools=tools, tool_choice={"type": "tool", "name": "weather"})
    for m in [whole, r]:
        call = m.content[0]
        assert m.stop_reason == "tool_use" and call.name == "weather" and call.input["text"], m
        answer = create(tools=tools, messages=messages + [
            {"role": "assistant", "content": m.content},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "rain"}]}])
        assert answer.content[0].text and answer.stop_reason == "max_tokens", answer


@check("image")
def _():
    bare = create(max_tokens=1)
    r = create(max_tokens=1, messages=[{"role": "user", "content": [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": pixel}}, {"type": "text", "text": "What is that?"}]}])
    assert inputs(r.usage) > inputs(bare.usage) + 50, (r.usage, bare.usage)


@check("thinking")
def _():
    r, _ = stream(max_tokens=1100, thinking={"type": "enabled", "budget_tokens": 1024})
    if translated:
        assert r.content[0].text, r
    else:
        thought, text = r.content
        assert thought.thinking and thought.signature and text.text, r
    create(messages=messages + [{"role": "assistant", "content": r.content}, {"role": "user", "content": "More!"}])


@check("stop sequence")
def _():
    for r in [create(max_tokens=200, stop_sequences=["e"]), stream(max_tokens=200, stop_sequences=["e"])[0]]:
        assert r.stop_reason == "stop_sequence" and r.stop_sequence == "e" and "e" not in r.content[0].text, r


@check("token count")
def _():
    n = client.messages.count_tokens(model=model, system=system, messages=messages).input_tokens
    real = inputs(create(max_tokens=1).usage)
    assert n == real or translated and 0.7 * real < n < 1.5 * real, (n, real)


@check("left stream")
def _():
    s = create(max_tokens=2000, stream=True)
    next(iter(s))
    s.close()


@check("unknown model")
def _():
    try:
        create(model="no-such-model")
    except anthropic.NotFoundError as e:
        assert "no-such-model" in str(e) and e.body["type"] == "error", e
        return
    raise AssertionError("no error")


@check("bad request")
def _():
    try:
        create(max_tokens=-5)
    except anthropic.BadRequestError as e:
        assert e.body["type"] == "error", e
        return
    raise AssertionError("no error")
