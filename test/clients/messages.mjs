// Asks what a user of the @anthropic-ai/sdk library would ask, and prints a line of JSON for each check.
import assert from 'node:assert/strict';
import Anthropic from '@anthropic-ai/sdk';

const [api, model, kind] = process.argv.slice(2);
const translated = kind === 'translated';
const client = new Anthropic({ baseURL: api, apiKey: 'none', maxRetries: 0, timeout: 30_000 });
const tools = [{ name: 'weather', description: 'of a place', input_schema: {
  type: 'object', properties: { text: { type: 'string' } }, required: ['text'] } }];
const system = [{ type: 'text', text: 'You are terse.', cache_control: { type: 'ephemeral' } }];
const messages = [{ role: 'user', content: 'What is the weather in Łódź? 🌍' }];
const pixel = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';

async function check(name, f) {
  let error = '';
  try {
    await f();
  } catch (e) {
    error = String(e).slice(0, 300);
  }
  console.log(JSON.stringify({ name, error }));
}

const params = (more) => ({ model, system, messages, max_tokens: 20, ...more });
const create = (more) => client.messages.create(params(more));
const stream = (more) => client.messages.stream(params(more)).finalMessage();
const inputs = (u) => u.input_tokens + (u.cache_read_input_tokens ?? 0) + (u.cache_creation_input_tokens ?? 0);

await check('models', async () => {
  const ids = [];
  for await (const m of client.models.list()) ids.push(m.id);
  assert(ids.includes(model));
});
await check('message', async () => {
  const r = await create({ max_tokens: 7 });
  assert(r.content[0].text);
  assert.equal(r.stop_reason, 'max_tokens');
  assert.equal(r.usage.output_tokens, 7);
  assert(inputs(r.usage) > 7);
});
await check('streamed message', async () => {
  const whole = await create();
  const names = new Set();
  const s = client.messages.stream(params());
  s.on('streamEvent', (e) => names.add(e.type));
  const r = await s.finalMessage();
  assert.equal(r.content[0].text, whole.content[0].text);
  assert.equal(r.stop_reason, 'max_tokens');
  assert.equal(r.usage.output_tokens, 20);
  assert.equal(inputs(r.usage), inputs(whole.usage));
  assert.deepEqual([...names], ['message_start', 'content_block_start', 'content_block_delta', 'content_block_stop', 'message_delta', 'message_stop']);
});
await check('tool call and its result', async () => {
  for (const m of [await create({ tools, tool_choice: { type: 'any' } }), await stream({ tools, tool_choice: { type: 'tool', name: 'weather' } })]) {
    const [call] = m.content;
    assert.equal(m.stop_reason, 'tool_use');
    assert.equal(call.name, 'weather');
    assert(call.input.text);
    const answer = await create({ tools, messages: [...messages, { role: 'assistant', content: m.content },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: call.id, content: 'rain' }] }] });
    assert(answer.content[0].text);
    assert.equal(answer.stop_reason, 'max_tokens');
  }
});
await check('image', async () => {
  const bare = await create({ max_tokens: 1 });
  const r = await create({ max_tokens: 1, messages: [{ role: 'user', content: [
    { type: 'image', source: { type: 'base64', media_type: 'image/png', data: pixel } }, { type: 'text', text: 'What is that?' }] }] });
  assert(inputs(r.usage) > inputs(bare.usage) + 50);
});
await check('thinking', async () => {
  const r = await stream({ max_tokens: 1100, thinking: { type: 'enabled', budget_tokens: 1024 } });
  const [thought, text] = r.content;
  assert(translated ? thought.text : thought.thinking && thought.signature && text.text);
  await create({ messages: [...messages, { role: 'assistant', content: r.content }, { role: 'user', content: 'More!' }] });
});
await check('stop sequence', async () => {
  for (const r of [await create({ max_tokens: 200, stop_sequences: ['e'] }), await stream({ max_tokens: 200, stop_sequences: ['e'] })]) {
    assert.equal(r.stop_reason, 'stop_sequence');
    assert.equal(r.stop_sequence, 'e');
    assert(!r.content[0].text.includes('e'));
  }
});
await check('token count', async () => {
  const n = await client.messages.countTokens({ model, system, messages });
  const real = inputs((await create({ max_tokens: 1 })).usage);
  assert(n.input_tokens === real || translated && n.input_tokens > 0.7 * real && n.input_tokens < 1.5 * real);
});
await check('left stream', async () => {
  for await (const event of await create({ max_tokens: 2000, stream: true })) {
    assert(event.type);
    break; // which aborts it
  }
});
await check('unknown model', () => assert.rejects(
  create({ model: 'no-such-model' }), (e) => e instanceof Anthropic.NotFoundError && /no-such-model/.test(e.message) && e.error.type === 'error'));
await check('bad request', () => assert.rejects(
  create({ max_tokens: -5 }), (e) => e instanceof Anthropic.BadRequestError && e.error.type === 'error'));
