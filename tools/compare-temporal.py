"""Compares the history of a workflow in Temporal with the events of its run in runlog.

usage: compare-temporal.py HISTORY.json EVENTS.jsonl [CLAIM:STEP[:STEP] …]

It prints a line for each step. It fails if a step has more than one terminal event in an attempt,
more than one StepCompleted in all, or ends on one side that the other side does not have. It also
fails if a claim does not hold on both sides:

  skipped:S     S was skipped by its condition: no activity of it was scheduled
  retried:S     the first attempt of S failed, and the second one completed: two activities
  killed:S      another worker ended S: a later engine attempt, in the same logical attempt
  paused:S      S was to be retried during a pause, and began after the resume; no step began in it
  waited:S:T    S began before T ended and ended after it; what depends on S began after that
"""
import base64
import collections
import json
import sys

history = json.load(open(sys.argv[1]))["events"]
log = [json.loads(line) for line in open(sys.argv[2])]


def decoded(payloads):
    return json.loads(base64.b64decode(payloads["payloads"][0]["data"]))


class Activity:
    """An activity of a step, STEP/LOGICAL ATTEMPT/NUMBER, and its places in the history."""

    def __init__(self, event, attributes):
        self.step, logical, _ = attributes["activityId"].split("/")
        self.logical, self.scheduled = int(logical), int(event["eventId"])
        self.engine, self.ended, self.answer = 0, 0, {}


# The pauses, as the history has them: the event that asks for RunPaused or RunResumed to be stored.
activities, paused, resumed = {}, [], []
for event in history:
    if attributes := event.get("activityTaskScheduledEventAttributes"):
        name = attributes["activityType"]["name"]
        if name == "executeStep":
            activities[event["eventId"]] = Activity(event, attributes)
        elif name == "tellRun":
            for told in decoded(attributes["input"]).get("events", []):
                place = {"RunPaused": paused, "RunResumed": resumed}.get(told["type"], [])
                place.append(int(event["eventId"]))
    elif attributes := event.get("activityTaskStartedEventAttributes"):
        if a := activities.get(attributes["scheduledEventId"]):
            a.engine = attributes["attempt"]
    elif attributes := event.get("activityTaskCompletedEventAttributes"):
        if a := activities.get(attributes["scheduledEventId"]):
            a.ended, a.answer = int(event["eventId"]), decoded(attributes["result"])
executed = collections.defaultdict(list)
for a in activities.values():
    executed[a.step].append(a)

steps = {}
for event in log:
    event["runSeq"] = int(event["runSeq"])
    if step := event.get("stepId"):
        steps.setdefault(step, []).append(event)


def shown(step):
    """The events of a step, such as StepStarted 1.1."""
    return [f"{e['eventType']} {e['logicalAttemptId']}.{e['engineAttemptId']}" for e in own(step)]


def logical(step):
    """The events of a step with their logical attempts, such as StepStarted 1."""
    return [f"{e['eventType']} {e['logicalAttemptId']}" for e in own(step)]


def own(step):
    """The events of a step, without the signals to it."""
    return [e for e in steps.get(step, []) if e["eventType"].startswith("Step")]


def seq(kind, step=None):
    """The runSeq of the last event of a type; 0: there is none."""
    return max((e["runSeq"] for e in log if e["eventType"] == kind and e.get("stepId") == step), default=0)


wrong = []


def check(holds, text):
    if not holds:
        wrong.append(text)


def both(claim, step, in_log, in_temporal):
    """Checks what a claim says on each side."""
    check(in_log, f"{claim}: not so in the log, which has for {step}: {', '.join(shown(step))}")
    check(in_temporal, f"{claim}: not so in Temporal, which has for {step}: " + ", ".join(
        f"attempt {a.logical}.{a.engine} {a.answer.get('status')}, events {a.scheduled} to {a.ended}" for a in executed[step]))


def skipped(claim, step):
    codes = [e["payload"].get("reasonCode") for e in steps.get(step, [])]
    both(claim, step, logical(step) == ["StepSkipped 1"] and codes == ["CONDITION"], not executed[step])


def retried(claim, step):
    both(claim, step, logical(step) == ["StepStarted 1", "StepFailed 1", "StepStarted 2", "StepCompleted 2"],
         [(a.logical, a.answer.get("status")) for a in executed[step]] == [(1, "FAILED"), (2, "SUCCESS")])


def killed(claim, step):
    last = steps[step][-1]["engineAttemptId"]
    both(claim, step, logical(step) == ["StepStarted 1", "StepCompleted 1"] and last > 1,
         [(a.logical, a.engine) for a in executed[step]] == [(1, last)])


def paused_in(claim, step):
    asked = [e["runSeq"] for e in log if e["eventType"] == "SignalAccepted" and e.get("stepId") == step]
    begun = [e["runSeq"] for e in log if e["eventType"] == "StepStarted"]
    pause, resume = seq("RunPaused"), seq("RunResumed")
    both(claim, step, any(pause < n < resume for n in asked) and 0 < resume < seq("StepStarted", step)
         and not any(pause < n < resume for n in begun),
         len(paused) == len(resumed) == 1 and executed[step] and executed[step][-1].scheduled > resumed[0]
         and not any(paused[0] < a.scheduled < resumed[0] for a in activities.values()))


def waited(claim, step, other):
    after = [s for s in steps if seq("StepStarted", s) > seq("StepCompleted", step)]
    one, two = executed[step][-1:], executed[other][-1:]
    both(claim, step, 0 < seq("StepStarted", step) < seq("StepCompleted", other) < seq("StepCompleted", step) and after,
         one and two and one[0].scheduled < two[0].ended < one[0].ended
         and all(a.scheduled > one[0].ended for s in after for a in executed[s]))


print(f"{'STEP':14}{'TEMPORAL':>10}  RUNLOG")
for step, events in steps.items():
    ends = collections.Counter(
        e["logicalAttemptId"] for e in events if e["eventType"] in ("StepCompleted", "StepFailed", "StepSkipped"))
    for attempt, n in ends.items():
        check(n == 1, f"step {step} has {n} ends in attempt {attempt}")
    n = sum(e["eventType"] == "StepCompleted" for e in events)
    check(n <= 1, f"step {step} has {n} StepCompleted")
    stored = {e["runSeq"] for e in events if e["eventType"] in ("StepCompleted", "StepFailed")}
    answered = {a.answer["seq"] for a in executed[step] if a.answer}
    check(stored == answered, f"step {step} ends at runSeq {sorted(stored)} in the log, and Temporal has {sorted(answered)}")
    print(f"{step:14}{len(executed[step]):>10}  {', '.join(shown(step))}")
claims = {"skipped": skipped, "retried": retried, "killed": killed, "paused": paused_in, "waited": waited}
for claim in sys.argv[3:]:
    kind, *names = claim.split(":")
    claims[kind](claim, *names)
if wrong:
    sys.exit("\n".join(wrong))
print(f"{len(steps)} steps: each attempt has one end, and Temporal has the same ends as the log.")
if sys.argv[3:]:
    print(f"On both sides: {', '.join(sys.argv[3:])}.")
