package inspect

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// Setting is what an annotation of the pod, or several, ask of podd, in words.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Settings returns the effect of the pod's annotations for podd, as far as they are valid
// and the node's budget has room for them (ADR 0032).
func Settings(p *v1.Pod) []Setting {
	var all []Setting
	if own, _ := pod.BackOffOf(p); own != (pod.BackOff{}) {
		var parts []string
		for _, part := range []struct {
			what string
			wait time.Duration
		}{{"first", own.Initial}, {"at most", own.Max}, {"after exit code 0", own.Success}} {
			if part.wait > 0 {
				parts = append(parts, fmt.Sprintf("%s %s", part.what, part.wait))
			}
		}
		all = append(all, Setting{"Restart Back-Off", strings.Join(parts, ", ")})
	}
	if pace, _ := pod.ProbeUntilSuccess(p); pace > 0 {
		all = append(all, Setting{"Probe Period", fmt.Sprintf("%s until the first success", pace)})
	}
	if restart, _ := pod.RestartOnChange(p); restart {
		all = append(all, Setting{"Also Restarted", "when a ConfigMap or Secret that it names changes"})
	}
	return all
}
