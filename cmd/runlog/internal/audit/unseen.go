package audit

import (
	"fmt"
	"strings"

	"runlog/client/command/output"
	runlogv1 "runlog/proto/runlog/v1"
)

// unseenText tells of a value of the filter that no event of the cluster has.
func unseenText(v *runlogv1.UnseenValue) string {
	name := valueNames[v.GetField()]
	if name == "" {
		name = v.GetField() // of a newer server
	}
	text := fmt.Sprintf("this cluster has no event of %s %q, in this window or in any other", name, v.GetValue())
	switch {
	case v.GetUncertain():
		text = fmt.Sprintf("no event was found, and the node that answered cannot tell yet whether the cluster has the %s %q: no leader answers, or a projection is being rebuilt; ask again later",
			name, v.GetValue())
	case v.GetField() == "runId":
		text = fmt.Sprintf("run %q does not exist in this cluster; check the runId", v.GetValue())
	}
	if v.GetDidYouMean() != "" {
		text += "; did you mean " + v.GetDidYouMean() + "?"
	}
	return text
}

// valueNames are the words for the parameters that an answer may find unseen.
var valueNames = map[string]string{"tenantId": "tenant", "runId": "run", "types": "type"}

// tellUnseen tells of the values of the filter that no event of the cluster has. With --strict they
// are an error.
func (a *app) tellUnseen(o *windowOptions, page *runlogv1.QueryEventsResponse) error {
	var texts []string
	code := output.ExitNotFound
	for _, v := range page.GetUnseen() {
		texts = append(texts, unseenText(v))
		if v.GetUncertain() {
			code = output.ExitUnavailable
		}
	}
	if len(texts) > 0 && o.strict {
		return output.Errorf(code, "%s", strings.Join(texts, "; "))
	}
	for _, text := range texts {
		if _, err := fmt.Fprintln(a.Stderr, "warning: "+output.OneLine(text)); err != nil {
			return err
		}
	}
	return nil
}
