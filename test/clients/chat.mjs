// Asks a router what a user of the openai library would ask, and prints a line of JSON for each check.
import assert from 'node:assert/strict';
import OpenAI from 'openai';

const [api, model, ...flags] = process.argv.slice(2);
const client = new OpenAI({ baseURL: api + '/v1', apiKey: 'none', maxRetries: 0, timeout: 30_000 });
const tools = [{ type: 'function', function: { name: 'weather', description: 'of a place', parameters: {
  type: 'object', properties: { text: { type: 'string' } }, required: ['text'] } } }];
const messages = [{ role: 'system', content: 'You are terse.' }, { role: 'user', content: 'What is the weather in Łódź? 🌍' }];
const pixel = 'data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';

async function check(name, f) {
  let error = '';
  try {
    await f();
  } catch (e) {
    error = String(e).slice(0, 300);
  }
  console.log(JSON.stringify({ name, error }));
}

await check('models', async () => {
  const ids = [];
  for await (const m of client.models.list()) ids.push(m.id);
  assert(ids.includes(model));
});
await check('chat', async () => {
  const r = await client.chat.completions.create({ model, messages, max_tokens: 7 });
  assert(r.choices[0].message.content);
  assert.equal(r.usage.completion_tokens, 7);
});
await check('streamed chat with usage', async () => {
  const whole = await client.chat.completions.create({ model, messages, max_tokens: 20 });
  let text = '', usage, finish;
  for await (const chunk of await client.chat.completions.create({ model, messages, max_tokens: 20, stream: true, stream_options: { include_usage: true } })) {
    usage = chunk.usage ?? usage;
    for (const c of chunk.choices) {
      text += c.delta.content ?? '';
      finish = c.finish_reason ?? finish;
    }
  }
  assert.equal(text, whole.choices[0].message.content);
  assert.equal(usage.completion_tokens, 20);
  assert.equal(finish, 'length');
});
await check('streamed tool call', async () => {
  const r = await client.chat.completions.stream({ model, messages, max_tokens: 12, tools, tool_choice: 'required' }).finalChatCompletion();
  const call = r.choices[0].message.tool_calls[0];
  assert.equal(call.function.name, 'weather');
  assert(JSON.parse(call.function.arguments).text);
  assert.equal(r.choices[0].finish_reason, 'tool_calls');
});
await check('tool call and its result', async () => {
  const asked = await client.chat.completions.create({ model, messages, max_tokens: 12, tools, tool_choice: 'required' });
  const { message } = asked.choices[0];
  const told = { role: 'tool', tool_call_id: message.tool_calls[0].id, content: '12 degrees, rain' };
  const r = await client.chat.completions.create({ model, messages: [...messages, message, told], max_tokens: 9, tools, tool_choice: 'none' });
  assert(r.choices[0].message.content);
  assert.equal(r.usage.completion_tokens, 9);
  assert(r.usage.prompt_tokens > asked.usage.prompt_tokens);
});
await check('image', async () => {
  const seen = [{ role: 'user', content: [{ type: 'text', text: 'What is this?' }, { type: 'image_url', image_url: { url: pixel } }] }];
  const r = await client.chat.completions.create({ model, messages: seen, max_tokens: 5 });
  assert(r.choices[0].message.content);
  assert.equal(r.usage.completion_tokens, 5);
});
await check('completions', async () => {
  const r = await client.completions.create({ model, prompt: ['one', 'two'], max_tokens: 4 });
  assert.deepEqual(r.choices.map((c) => c.index), [0, 1]);
  assert.equal(r.usage.completion_tokens, 8);
});
await check('embeddings', async () => {
  const r = await client.embeddings.create({ model, input: ['one', 'two'] });
  assert.equal(r.data.length, 2);
  assert(r.data[0].embedding.length > 0);
});
await check('left stream', async () => {
  const stream = await client.chat.completions.create({ model, messages, max_tokens: 2000, stream: true });
  for await (const chunk of stream) {
    assert(chunk.id);
    break; // which aborts it
  }
});
await check('unknown model', () => assert.rejects(
  client.chat.completions.create({ model: 'no-such-model', messages }), (e) => e instanceof OpenAI.NotFoundError && /no-such-model/.test(e.message)));
await check('bad request', () => assert.rejects(
  client.chat.completions.create({ model, messages, max_tokens: -5 }), OpenAI.BadRequestError));

if (flags.includes('responses')) {
  await check('response', async () => {
    const r = await client.responses.create({ model, instructions: 'You are terse.', input: 'What is the weather?', max_output_tokens: 7 });
    assert(r.output_text);
    assert.equal(r.model, model);
    assert.equal(r.usage.output_tokens, 7);
  });
  await check('streamed response and what goes on from it', async () => {
    let text = '', done;
    for await (const event of await client.responses.create({ model, input: 'What is the weather?', max_output_tokens: 20, stream: true })) {
      if (event.type === 'response.output_text.delta') text += event.delta;
      if (event.type === 'response.completed' || event.type === 'response.incomplete') done = event.response;
    }
    assert(text);
    assert.equal(done.output[0].content[0].text, text);
    assert.equal(done.usage.output_tokens, 20);
    for (let i = 0; i < 3; i++) {
      const r = await client.responses.create({ model, input: 'And tomorrow?', previous_response_id: done.id, max_output_tokens: 5 });
      assert.equal(r.previous_response_id, done.id);
      assert(r.usage.input_tokens > done.usage.total_tokens);
    }
    assert.equal((await client.responses.retrieve(done.id)).id, done.id);
  });
  await check('response of nobody', async () => {
    await assert.rejects(client.responses.create({ model, input: 'Go on', previous_response_id: 'resp_none' }), { status: 404, param: 'previous_response_id' });
  });
}
