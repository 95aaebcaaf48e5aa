// Converts the OpenAPI 2.0 description that protoc-gen-openapiv2 makes to OpenAPI 3.1, and adds what
// the .proto files do not say: the shape of errors, event streams, entity tags and the schemas.
//
//   node tools/openapi.mjs openapi.swagger.json openapi.json
import { readFileSync, writeFileSync } from "node:fs";

const [from, to] = process.argv.slice(2);
const old = JSON.parse(readFileSync(from, "utf8"));
const json = "application/json";

// Names of fields, as JSON has them.
const camel = (text) => text.replace(/\b[a-z]+(?:_[a-z]+)+\b/g, (name) => name.replace(/_(.)/g, (_, c) => c.toUpperCase()));

// A schema of OpenAPI 2.0 is one of 3.1 but for its references.
function schema(v) {
  if (Array.isArray(v)) return v.map(schema);
  if (v === null || typeof v !== "object") return v;
  const out = {};
  for (const [name, value] of Object.entries(v)) {
    if (name === "$ref") out.$ref = value.replace("#/definitions/", "#/components/schemas/");
    else if ((name === "description" || name === "title") && typeof value === "string") out[name] = camel(value);
    else out[name] = schema(value);
  }
  return out;
}

const errors = {
  description: "An error. `details` has an ErrorInfo whose `reason` says what happened; docs/errors.md lists the reasons.",
  content: { [json]: { schema: { $ref: "#/components/schemas/Error" } } },
};

function parameter(p) {
  const { name, in: place, description, required, collectionFormat, ...type } = p;
  const out = { name, in: place, required: Boolean(required), schema: schema(type) };
  if (description) out.description = camel(description);
  if (name === "runId" && place === "path") out.description = "The run, percent-encoded as one segment of the path.";
  return out;
}

function operation(path, o) {
  const body = o.parameters?.find((p) => p.in === "body");
  const ok = schema(o.responses["200"].schema);
  const stream = ok?.title?.startsWith("Stream result");
  const file = ok?.$ref?.endsWith("/HttpBody");
  const bytes = { schema: { type: "string", format: "binary" } };
  const content = file ? { "application/octet-stream": bytes, "text/plain": bytes } : { [json]: { schema: ok } };
  if (stream) {
    content["text/event-stream"] = { schema: { type: "string", description: "Server-Sent Events: each `data` is the JSON of `result`." } };
  }
  const out = {
    operationId: o.operationId,
    summary: camel(o.summary ?? o.operationId).split("\n").join(" "),
    description: camel(o.description ?? o.summary ?? o.operationId),
    tags: o.tags,
    parameters: (o.parameters ?? []).filter((p) => p.in !== "body" && p.name !== "ifNoneMatch").map(parameter),
    responses: { 200: { description: stream ? "A stream, one JSON object a line." : "The answer.", content }, default: errors },
  };
  if (body) out.requestBody = { required: true, content: { [json]: { schema: schema(body.schema) } } };
  if (path.endsWith("/snapshot") || path.endsWith("/events")) {
    out.parameters.push({ name: "If-None-Match", in: "header", required: false, schema: { type: "string" }, description: "The ETag of an earlier answer." });
    out.responses[200].headers = { ETag: { schema: { type: "string" }, description: "Identifies the state that the answer shows." } };
    out.responses[304] = { description: "The state has the ETag of the request." };
  }
  return out;
}

const paths = {};
for (const [path, methods] of Object.entries(old.paths)) {
  paths[path] = Object.fromEntries(Object.entries(methods).map(([method, o]) => [method, operation(path, o)]));
}
const page = (summary, type, more = {}) => ({
  get: { operationId: summary.replace(/\W+/g, ""), summary, description: summary + ".", tags: ["Pages"],
    responses: { 200: { description: "The answer.", content: { [type]: { schema: {} } } }, default: errors }, ...more },
});
paths["/schemas/{contract}/{eventType}.json"] = page("JSON Schema of the payload of an event type", "application/schema+json", {
  parameters: [
    { name: "contract", in: "path", required: true, schema: { type: "string", enum: ["2.0.0", "1.1"] }, description: "The contract version." },
    { name: "eventType", in: "path", required: true, schema: { type: "string" }, description: "A known event type, such as RunStarted." },
  ],
});
paths["/healthz"] = page("Liveness of the node", "text/plain");
paths["/readyz"] = page("Readiness of the node for appends", "text/plain");

const { Status, ...schemas } = old.definitions;
const text = (description) => ({ type: "string", description });
const components = schema(schemas);
// Over HTTP, events have JSON objects where gRPC has bytes.
for (const event of [components.EventWrite, components.EventRecord]) {
  event.properties.payload = { type: "object", description: "A JSON object, kept and returned byte for byte (ENV-8)." };
  event.properties.extensions = { type: "object", description: "What this contract version has no field for: a JSON object of at most 4 KiB, kept and returned byte for byte." };
}
delete components.PulledEvent.properties.eventJson;
components.PulledEvent.properties.event = { type: "object", description: "The CloudEvent (BUS-7), with the payload as it is stored." };
components.Status = { $ref: "#/components/schemas/Error" };
components.Error = {
  type: "object",
  description: "An error, as google.rpc.Status. Each of `details` says by its `@type` what it is.",
  required: ["code", "message", "details"],
  properties: {
    code: { type: "integer", description: "The gRPC code." },
    message: text("What failed, why, and what to do."),
    details: {
      type: "array",
      items: { anyOf: ["ErrorInfo", "BadRequest", "RetryInfo"].map((name) => ({ $ref: "#/components/schemas/" + name })) },
    },
  },
};
components.ErrorInfo = {
  type: "object",
  description: "Why the call failed. Every error has one.",
  required: ["@type", "reason", "domain"],
  properties: {
    "@type": { const: "type.googleapis.com/google.rpc.ErrorInfo" },
    reason: text("A reason of the contract, such as RUN_NOT_FOUND."),
    domain: { const: "runlog" },
    metadata: { type: "object", additionalProperties: { type: "string" }, description: "The facts." },
  },
};
components.BadRequest = {
  type: "object",
  description: "Every invalid field of the request.",
  required: ["@type", "fieldViolations"],
  properties: {
    "@type": { const: "type.googleapis.com/google.rpc.BadRequest" },
    fieldViolations: {
      type: "array",
      items: { type: "object", properties: { field: text("Path of the field."), description: text("What is wrong."), reason: text("A reason of the contract.") } },
    },
  },
};
components.RetryInfo = {
  type: "object",
  description: "When to send the request again.",
  required: ["@type", "retryDelay"],
  properties: { "@type": { const: "type.googleapis.com/google.rpc.RetryInfo" }, retryDelay: text("Such as 0.250s.") },
};

const out = {
  openapi: "3.1.0",
  info: {
    title: old.info.title,
    version: old.info.version,
    summary: old.info.description,
    description: old.info.description + " Names of enum values may be written in any case. Numbers of 64 bits are decimal strings in answers.",
    license: { name: "Apache-2.0", identifier: "Apache-2.0" },
  },
  servers: [{ url: "/", description: "This node." }],
  tags: [...old.tags.map((t) => ({ ...t, description: t.description ? camel(t.description) : t.name })), { name: "Pages", description: "Health and schemas." }],
  paths,
  components: { schemas: components },
};
writeFileSync(to, JSON.stringify(out, null, 2) + "\n");
