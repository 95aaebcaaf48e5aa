// Prints the events of a pull subscription, each once while it runs (docs/event-bus.md).
//
//     node consumer.mjs http://127.0.0.1:7411 planner [MAX]
//
// RUNLOG_TENANT has the tenant of the subscription, unless the caller has that one alone.
// RUNLOG_TOKEN has the token, if the node wants one. Only fetch is needed. It waits for more events
// until Ctrl-C, or until it has printed MAX.

const [url, subscription, max] = process.argv.slice(2);
if (!subscription) {
  console.error('usage: node consumer.mjs http://127.0.0.1:7411 SUBSCRIPTION [MAX]');
  process.exit(2);
}
const path = `${url}/v1/subscriptions/${subscription}`;
const headers = { 'Content-Type': 'application/json' };
if (process.env.RUNLOG_TOKEN) {
  headers.Authorization = `Bearer ${process.env.RUNLOG_TOKEN}`;
}

const tenant = process.env.RUNLOG_TENANT ? { tenantId: process.env.RUNLOG_TENANT } : {};

// call posts a request until the node takes it, and returns the answer.
async function call(verb, body) {
  for (;;) {
    const request = { method: 'POST', headers, body: JSON.stringify({ ...tenant, ...body }), signal: AbortSignal.timeout(60_000) };
    let why;
    try {
      const response = await fetch(path + verb, request);
      if (response.ok) {
        return await response.json();
      }
      why = await response.text();
      if (![429, 503].includes(response.status)) {
        console.error(why);
        process.exit(1);
      }
    } catch (e) { // The node is away for a moment, or the address is wrong.
      why = e.cause ?? e;
    }
    console.error(`${path}${verb}: ${why}; trying again`);
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}

const last = new Map(); // the highest runseq of each run; keep it with your own data
const most = max ? Number(max) : Infinity;
for (let handled = 0; handled < most; ) {
  const acknowledged = [];
  const refused = [];
  const { deliveries } = await call(':pull', { max: Math.min(100, most - handled), wait: '20s' });
  for (const { deliveryId, event } of deliveries) {
    const seq = Number(event.runseq);
    try {
      if (seq > (last.get(event.subject) ?? 0)) { // Otherwise it is a repeat.
        console.log(event.subject, seq, event.type.slice('runlog.'.length));
        last.set(event.subject, seq);
        handled += 1;
      }
      acknowledged.push(deliveryId);
    } catch { // What your own code throws.
      refused.push(deliveryId);
    }
  }
  if (acknowledged.length > 0) {
    await call(':ack', { deliveryIds: acknowledged });
  }
  if (refused.length > 0) {
    await call(':nack', { deliveryIds: refused });
  }
}
