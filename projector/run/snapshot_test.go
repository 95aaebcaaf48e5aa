package run

import (
	"testing"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

func TestStatusesAreThoseOfTheWire(t *testing.T) {
	if len(contract.RunStatusNames()) != len(runlogv1.RunStatus_Value_name) ||
		len(stepStatusNames) != len(runlogv1.StepStatus_Value_name) {
		t.Error("not as many statuses as on the wire")
	}
	for s := Pending; s <= Cancelled; s++ {
		if want := runlogv1.RunStatus_Value(s).String(); s.String() != want {
			t.Errorf("run status %d is %v, want %s", s, s, want)
		}
		if want := s == Completed || s == Failed || s == Cancelled; s.Terminal() != want {
			t.Errorf("%v: terminal %v", s, s.Terminal())
		}
	}
	for s := StepPending; s <= StepSkipped; s++ {
		if want := runlogv1.StepStatus_Value(s).String(); s.String() != want {
			t.Errorf("step status %d is %v, want %s", s, s, want)
		}
		if want := s == StepSuccess || s == StepFailed || s == StepSkipped; s.Terminal() != want {
			t.Errorf("%v: terminal %v", s, s.Terminal())
		}
	}
	if got := Status(200).String(); got != "INVALID(200)" {
		t.Errorf("a status that is none is %s", got)
	}
}
