package cli

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"podd/server"
)

// psColumns is the table of podd ps, from left to right. A new column is a row here.
var psColumns = []psColumn{
	{header: "NAMESPACE", value: func(p *psPod) string { return p.Namespace }},
	{header: "NAME", value: func(p *psPod) string { return p.Name }},
	{header: "READY", value: (*psPod).readiness, watchKey: (*psPod).readiness},
	{header: "STATUS", value: (*psPod).statusText, watchKey: (*psPod).statusText},
	{header: "RESTARTS", value: (*psPod).restartsText, watchKey: func(p *psPod) string { return strconv.Itoa(p.restarts) }},
	{header: "AGE", value: (*psPod).age},
	{header: "IP", value: (*psPod).ip, watchKey: (*psPod).ip},
	{header: "NODE", wide: true, value: func(p *psPod) string { return cmp.Or(p.Spec.NodeName, none) }},
	{header: "IMAGES", wide: true, value: (*psPod).images},
	{header: "SOURCE", wide: true, value: func(p *psPod) string { return cmp.Or(p.origin, none) }},
	{header: "UID", wide: true, value: func(p *psPod) string { return string(p.UID) }},
}

// none is the cell for a missing value, as in kubectl.
const none = "<none>"

// psColumn is a column of podd ps.
type psColumn struct {
	header string
	// wide columns are shown with -o wide only.
	wide bool
	// value returns the cell for a pod.
	value func(*psPod) string
	// watchKey returns the part of the value that makes a watch into a pipe write the row again
	// when it changes. It leaves out what changes with time, such as an age. nil means nothing.
	watchKey func(*psPod) string
}

// psPod is a pod and the values of its columns.
type psPod struct {
	*v1.Pod
	summary
	origin       string
	runsLastGood bool // the pod's last good version runs
	now          time.Time
}

func (p *psPod) readiness() string { return fmt.Sprintf("%d/%d", p.ready, p.total) }

func (p *psPod) statusText() string {
	if p.runsLastGood {
		return p.status + " (last good manifest)"
	}
	return p.status
}

func (p *psPod) restartsText() string {
	text := strconv.Itoa(p.restarts)
	if p.restarts > 0 && !p.lastRestart.IsZero() {
		text += " (" + duration.HumanDuration(p.now.Sub(p.lastRestart)) + " ago)"
	}
	return text
}

func (p *psPod) age() string {
	switch {
	case !p.CreationTimestamp.IsZero():
		return duration.HumanDuration(p.now.Sub(p.CreationTimestamp.Time))
	case p.Status.StartTime != nil:
		return duration.HumanDuration(p.now.Sub(p.Status.StartTime.Time))
	}
	return "<unknown>"
}

func (p *psPod) ip() string { return cmp.Or(p.Status.PodIP, none) }

func (p *psPod) images() string {
	var images []string
	for _, c := range p.Spec.Containers {
		images = append(images, c.Image)
	}
	return strings.Join(images, ",")
}

func (v view) heading() []string {
	var cells []string
	for _, c := range psColumns {
		if v.wide || !c.wide {
			cells = append(cells, c.header)
		}
	}
	return cells
}

// row is a line of the table. key leaves out what changes with time.
type row struct {
	cells []string
	key   string
}

func (v view) pods(l server.Listing, now time.Time) []row {
	lastGood := map[string]bool{}
	for _, p := range l.Problems {
		if p.LastGoodInUse && p.Pod != "" {
			lastGood[p.Pod] = true
		}
	}
	var rows []row
	for _, info := range l.Pods {
		rows = append(rows, v.row(&psPod{Pod: info.Pod, summary: summarize(info.Pod), origin: info.Origin,
			runsLastGood: lastGood[info.Pod.Namespace+"/"+info.Pod.Name], now: now}))
	}
	return rows
}

func (v view) row(p *psPod) row {
	var cells []string
	key := []string{string(p.UID)}
	for _, c := range psColumns {
		if v.wide || !c.wide {
			cells = append(cells, printable(c.value(p)))
		}
		if c.watchKey != nil {
			key = append(key, c.watchKey(p))
		}
	}
	return row{cells, strings.Join(key, " ")}
}
