package cli

import (
	"bytes"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/inspect"
	"podd/internal/pod"
	"podd/podconfig/file"
	"podd/server"
)

// hostileText is what a manifest, a file's name or a program's message may contain to
// manipulate a terminal: colours, the window's title, a forged line, reversed text.
const hostileText = "x\x1b[31m\x1b]0;title\x07\u009b2J\rgone\nNAMESPACE   forged\v\f\b\u202eback\u2066\u2028y"

// corrupt sets every string of a value to the hostile text, and gives every list, map
// and pointer one element.
func corrupt(v reflect.Value, depth int) {
	const deepest = 9
	if depth > deepest {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(hostileText)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		corrupt(v.Elem(), depth+1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		corrupt(v.Index(0), depth+1)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		corrupt(key, depth+1)
		corrupt(value, depth+1)
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				corrupt(v.Field(i), depth+1)
			}
		}
	}
}

// hostilePods returns pods in which everything is hostile: one per kind of volume,
// since only one kind is printed of each, and in each state.
func hostilePods() []*v1.Pod {
	var all []*v1.Pod
	for i := range reflect.TypeFor[v1.VolumeSource]().NumField() {
		p := &v1.Pod{}
		corrupt(reflect.ValueOf(p).Elem(), 0)
		source := reflect.ValueOf(&p.Spec.Volumes[0].VolumeSource).Elem()
		for j := range source.NumField() {
			if j != i {
				source.Field(j).SetZero()
			}
		}
		status := &p.Status.ContainerStatuses[0]
		switch i % 3 {
		case 0:
			status.State.Running, status.State.Terminated = nil, nil
		case 1:
			status.State.Waiting, status.State.Terminated = nil, nil
		case 2:
			status.State.Waiting, status.State.Running = nil, nil
		}
		if i%2 == 0 {
			p.DeletionTimestamp, p.Status.Reason = nil, ""
			p.Status.Phase = v1.PodPending
		}
		all = append(all, p)
	}
	return all
}

// TestNothingThatIsPrintedDrivesATerminal: whatever manifests, files and programs
// contain, podd's output has only podd's own lines and colours.
func TestNothingThatIsPrintedDrivesATerminal(t *testing.T) {
	now := time.Now()
	problem := pod.Problem{Origin: hostileText, Line: 1, Field: hostileText, Message: hostileText, Hint: hostileText, Pod: "a/" + hostileText, Object: hostileText}
	event := v1.Event{Type: "Normal", Reason: hostileText, Message: hostileText, InvolvedObject: v1.ObjectReference{Namespace: hostileText, Name: hostileText, FieldPath: "spec.containers{" + hostileText + "}"},
		Source: v1.EventSource{Component: hostileText}, LastTimestamp: metav1.NewTime(now), FirstTimestamp: metav1.NewTime(now), Count: 2}
	object := server.ObjectInfo{Kind: "Secret", Namespace: hostileText, Name: hostileText, Type: hostileText, Keys: []string{hostileText}, UsedBy: []string{hostileText}, Origin: hostileText, Line: 1}
	volume := server.Volume{}
	corrupt(reflect.ValueOf(&volume).Elem(), 0)
	prints := map[string]func(w io.Writer) error{
		"podd get": func(w io.Writer) error {
			o := GetOptions{Output: "wide"}
			return new(table).write(w, o.rows(getResources[1], []server.ObjectInfo{object}, now))
		},
		"podd get -o name": func(w io.Writer) error {
			o := GetOptions{Output: "name"}
			return o.print(w, w, getResources[1], []server.ObjectInfo{object})
		},
		"podd events": func(w io.Writer) error { return new(table).write(w, eventRows([]v1.Event{event}, true, now)) },
		"podd validate": func(w io.Writer) error {
			printVerdict(w, file.Verdict{Problems: []pod.Problem{problem}, LeftOut: []string{hostileText}})
			return nil
		},
		"podd inspect": func(w io.Writer) error {
			p := inspect.Pod{}
			corrupt(reflect.ValueOf(&p).Elem(), 0)
			p.Containers = append(p.Containers, p.Containers[0])
			p.Containers[0].Message = ""
			return writeInspection(w, p, 80)
		},
	}
	for _, p := range hostilePods() {
		info := server.PodInfo{Pod: p, Origin: hostileText, Causes: map[string]string{hostileText: hostileText}}
		listing := server.Listing{Pods: []server.PodInfo{info}, Problems: []pod.Problem{problem}}
		kind := sourceName(&p.Spec.Volumes[0].VolumeSource)
		for name, wide := range map[string]bool{"podd ps": false, "podd ps -o wide": true} {
			prints[name+" "+kind] = func(w io.Writer) error { return view{wide: wide, width: 120}.write(w, listing, now) }
		}
		prints["podd describe "+kind] = func(w io.Writer) error {
			d := &description{PodInfo: info, volumes: []server.Volume{volume}, events: []v1.Event{event}, problems: []string{hostileText}, now: now}
			return d.write(w)
		}
	}
	for name, write := range prints {
		var out bytes.Buffer
		if err := write(&out); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for line := range strings.Lines(out.String()) {
			line = strings.TrimSuffix(line, "\n")
			bad := strings.IndexFunc(line, func(r rune) bool {
				return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
			})
			if bad >= 0 || strings.HasPrefix(line, "NAMESPACE   forged") {
				t.Fatalf("%s prints %q", name, line)
			}
		}
		if !strings.Contains(out.String(), "forged") {
			t.Errorf("%s: the hostile text was not printed at all:\n%s", name, out.String())
		}
	}
}
