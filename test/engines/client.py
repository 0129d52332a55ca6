"""Asks a router in front of a real engine what a user of the openai library would ask; fails at what is wrong."""

import sys

import openai

api, model, counts = sys.argv[1], sys.argv[2], sys.argv[3] == "true"  # counts: the engine tells its usage in streams
client = openai.OpenAI(base_url=api + "/v1", api_key="none", max_retries=0, timeout=120)
messages = [{"role": "system", "content": "You are terse."}, {"role": "user", "content": "What is the sea? 🌍"}]

assert model in [m.id for m in client.models.list()]
whole = client.chat.completions.create(model=model, messages=messages, max_tokens=16, temperature=0, seed=1)
assert whole.choices[0].message.content and whole.usage.prompt_tokens > 0 and 0 < whole.usage.completion_tokens <= 16, whole
text, usage, finish = "", None, None
for chunk in client.chat.completions.create(model=model, messages=messages, max_tokens=16, temperature=0, seed=1, stream=True,
                                            stream_options={"include_usage": True}):
    usage = chunk.usage or usage
    for c in chunk.choices:
        text += c.delta.content or ""
        finish = c.finish_reason or finish
assert text and finish and (usage or not counts), (text, finish, usage)
completion = client.completions.create(model=model, prompt="The sea is", max_tokens=8, temperature=0)
assert completion.choices[0].text and completion.usage.completion_tokens > 0, completion
streamed = "".join(c.text for chunk in client.completions.create(model=model, prompt="The sea is", max_tokens=8, temperature=0, stream=True)
                   for c in chunk.choices)
assert streamed
stream = client.chat.completions.create(model=model, messages=messages, max_tokens=2000, stream=True)
next(iter(stream))
stream.close()
try:
    client.chat.completions.create(model="no-such-model", messages=messages)
    raise SystemExit("an unknown model was served")
except openai.NotFoundError as e:
    assert "no-such-model" in str(e), e
print(f"openai {openai.__version__}: models, chat, streams, completions, a left stream, errors")
