"""Asks a router what a user of the openai library would ask, and prints a line of JSON for each check."""

import json
import sys

import openai

api, model = sys.argv[1], sys.argv[2]
client = openai.OpenAI(base_url=api + "/v1", api_key="none", max_retries=0, timeout=30)
tools = [{"type": "function", "function": {"name": "weather", "description": "of a place", "parameters": {
    "type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}}}]
messages = [{"role": "system", "content": "You are terse."}, {"role": "user", "content": "What is the weather in Łódź? 🌍"}]

pixel = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def check(name):
    def run(f):
        error = ""
        try:
            f()
        except Exception as e:  # every failure is a result
            error = f"{type(e).__name__}: {e}"
        print(json.dumps({"name": name, "error": error}))
    return run


@check("models")
def _():
    assert model in [m.id for m in client.models.list()]


@check("chat")
def _():
    r = client.chat.completions.create(model=model, messages=messages, max_tokens=7)
    assert r.choices[0].message.content and r.usage.completion_tokens == 7, r


@check("streamed chat with usage")
def _():
    whole = client.chat.completions.create(model=model, messages=messages, max_tokens=20)
    text, usage, finish = "", None, None
    for chunk in client.chat.completions.create(model=model, messages=messages, max_tokens=20, stream=True,
                                                stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for c in chunk.choices:
            text += c.delta.content or ""
            finish = c.finish_reason or finish
    assert text == whole.choices[0].message.content and usage.completion_tokens == 20 and finish == "length", (text, usage, finish)


@check("streamed tool call")
def _():
    name, arguments, finish = "", "", None
    for chunk in client.chat.completions.create(model=model, messages=messages, max_tokens=12, tools=tools,
                                                tool_choice="required", stream=True):
        for c in chunk.choices:
            finish = c.finish_reason or finish
            for call in c.delta.tool_calls or []:
                name += call.function.name or ""
                arguments += call.function.arguments or ""
    assert name == "weather" and json.loads(arguments)["text"] and finish == "tool_calls", (name, arguments, finish)


@check("tool call and its result")
def _():
    asked = client.chat.completions.create(model=model, messages=messages, max_tokens=12, tools=tools, tool_choice="required")
    call = asked.choices[0].message.tool_calls[0]
    told = {"role": "tool", "tool_call_id": call.id, "content": "12 degrees, rain"}
    r = client.chat.completions.create(model=model, messages=[*messages, asked.choices[0].message, told], max_tokens=9, tools=tools,
                                       tool_choice="none")
    assert r.choices[0].message.content and r.usage.completion_tokens == 9, r
    assert r.usage.prompt_tokens > asked.usage.prompt_tokens, (asked.usage, r.usage)


@check("image")
def _():
    seen = [{"role": "user", "content": [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": pixel}}]}]
    r = client.chat.completions.create(model=model, messages=seen, max_tokens=5)
    assert r.choices[0].message.content and r.usage.completion_tokens == 5, r


@check("completions")
def _():
    r = client.completions.create(model=model, prompt=["one", "two"], max_tokens=4)
    assert [c.index for c in r.choices] == [0, 1] and r.usage.completion_tokens == 8, r


@check("embeddings")
def _():
    r = client.embeddings.create(model=model, input=["one", "two"])
    assert len(r.data) == 2 and len(r.data[0].embedding) > 0, r


@check("left stream")
def _():
    stream = client.chat.completions.create(model=model, messages=messages, max_tokens=2000, stream=True)
    next(iter(stream))
    stream.close()


@check("unknown model")
def _():
    try:
        client.chat.completions.create(model="no-such-model", messages=messages)
    except openai.NotFoundError as e:
        assert "no-such-model" in str(e), e
        return
    raise AssertionError("no error")


@check("bad request")
def _():
    try:
        client.chat.completions.create(model=model, messages=messages, max_tokens=-5)
    except openai.BadRequestError:
        return
    raise AssertionError("no error")


def responses():
    @check("response")
    def _():
        r = client.responses.create(model=model, instructions="You are terse.", input="What is the weather?", max_output_tokens=7)
        assert r.output_text and r.model == model and r.usage.output_tokens == 7, r

    @check("streamed response and what goes on from it")
    def _():
        text, done = "", None
        for event in client.responses.create(model=model, input="What is the weather?", max_output_tokens=20, stream=True):
            if event.type == "response.output_text.delta":
                text += event.delta
            if event.type in ("response.completed", "response.incomplete"):
                done = event.response
        assert text and done.output_text == text and done.usage.output_tokens == 20, (text, done)
        for _ in range(3):
            r = client.responses.create(model=model, input="And tomorrow?", previous_response_id=done.id, max_output_tokens=5)
            assert r.previous_response_id == done.id and r.usage.input_tokens > done.usage.total_tokens, r
        assert client.responses.retrieve(done.id).output_text == text

    @check("response of nobody")
    def _():
        try:
            client.responses.create(model=model, input="Go on", previous_response_id="resp_none")
        except openai.NotFoundError as e:
            assert e.param == "previous_response_id", e
            return
        raise AssertionError("no error")


if "responses" in sys.argv[3:]:
    responses()
