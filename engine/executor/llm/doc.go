// Package llm executes a step as one chat completion of a language model (ENG-3), by the HTTP API
// that OpenAI began and many servers speak.
//
// The inputs of a step:
//
//	model        the model; by default that of the options
//	messages     of each {role, content}
//	temperature  0 to 2; without it the server's
//	maxTokens    of the answer; without it the server's
//	apiKey       the reference of the key; by default that of the options
//	policy       more rules for the answer: {maxChars, forbidden[], jsonSchema, secrets}
//
// The output is {text, model, finishReason, usage {promptTokens, completionTokens, totalTokens}}.
//
// The base of the URL is an option of the worker, so a plan cannot send a key elsewhere. The worker
// resolves its own key for each attempt, and plans need no reference to it. An answer
// is an output only after the policy of the worker and that of the step have passed it:
//
//	server ─► bounded, whole JSON ─► Policy of the worker ─► policy of the step ─► output
//	                                        └─ *Violation ─► LLM_POLICY_VIOLATION, no text
//
// A Policy that fails otherwise lets nothing pass; the step is retryable then.
package llm
