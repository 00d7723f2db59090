package agent_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"podd/internal/pod"
)

// outage is what is wrong with an apiserver.
type outage string

const (
	none    outage = ""
	away    outage = "connections are refused"
	tooMany outage = "429 with Retry-After"
	broken  outage = "500"
	half    outage = "half a body"
	hanging outage = "no answer"
)

// fakeAPI is as much of an apiserver as a node's pods need, as a transport: it must live in
// simulated time.
type fakeAPI struct {
	t *testing.T

	mu      sync.Mutex
	wrong   outage
	mended  chan struct{} // closed when that ends
	pods    map[string]*v1.Pod
	version int
	oldest  int // versions before it are gone
	watches map[*apiWatch]bool
	count   map[string]int
}

// newFakeAPI is for within a bubble. client-go logs some errors at a pace of its own, which
// began before that: by the bubble's clock, in the far future.
func newFakeAPI(t *testing.T) *fakeAPI {
	utilruntime.ErrorHandlers = nil
	return &fakeAPI{t: t, version: 100, mended: make(chan struct{}), pods: map[string]*v1.Pod{}, watches: map[*apiWatch]bool{}, count: map[string]int{}}
}

func (a *fakeAPI) transport(http.RoundTripper) http.RoundTripper { return a }

// fail begins an outage, which ends all watches, or ends it.
func (a *fakeAPI) fail(how outage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.wrong = how
	if how == none {
		close(a.mended)
		a.mended = make(chan struct{})
		return
	}
	a.endWatchesLocked(nil)
}

// compact forgets all versions before the newest.
func (a *fakeAPI) compact() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.oldest = a.version
}

// expire ends all watches as too old.
func (a *fakeAPI) expire() {
	a.mu.Lock()
	defer a.mu.Unlock()
	text, _ := json.Marshal(metav1.WatchEvent{Type: "ERROR", Object: rawStatus(http.StatusGone, metav1.StatusReasonExpired)})
	a.endWatchesLocked(text)
}

func (a *fakeAPI) endWatchesLocked(last []byte) {
	for w := range a.watches {
		w.send(last)
		w.send(nil)
	}
	clear(a.watches)
}

func (a *fakeAPI) create(name, generation string) {
	p := &v1.Pod{}
	p.Namespace, p.Name, p.UID, p.CreationTimestamp = "default", name, pod.UID(name+"-uid"+generation), metav1.Now()
	p.Spec = v1.PodSpec{NodeName: "node0", RestartPolicy: v1.RestartPolicyAlways, Containers: []v1.Container{{Name: "main", Image: "i"}}}
	p.Status.Phase = v1.PodPending
	a.mu.Lock()
	defer a.mu.Unlock()
	a.storeLocked("ADDED", p)
}

func (a *fakeAPI) edit(name string, edit func(*v1.Pod)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pods[name].DeepCopy()
	edit(p)
	a.storeLocked("MODIFIED", p)
}

func (a *fakeAPI) remove(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.removeLocked(name)
}

func (a *fakeAPI) removeLocked(name string) {
	a.storeLocked("DELETED", a.pods[name].DeepCopy())
	delete(a.pods, name)
}

// pod is the newest version of one; nil if it is not there.
func (a *fakeAPI) pod(name string) *v1.Pod {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pods[name].DeepCopy()
}

func (a *fakeAPI) storeLocked(what string, p *v1.Pod) {
	a.version++
	p.ResourceVersion = strconv.Itoa(a.version)
	a.pods[p.Name] = p
	for w := range a.watches {
		w.send(event(what, p))
	}
}

func event(what string, p *v1.Pod) []byte {
	p = p.DeepCopy()
	p.Kind, p.APIVersion = "Pod", "v1"
	object, _ := json.Marshal(p)
	text, _ := json.Marshal(map[string]any{"type": what, "object": json.RawMessage(object)})
	return text
}

// unready are the pods that are not Ready here.
func (a *fakeAPI) unready() (names []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, p := range a.pods {
		if !slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodReady && c.Status == v1.ConditionTrue }) || p.Status.Phase != v1.PodRunning {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// did returns what was done since the last call: successful changes by name, and the number
// of requests.
func (a *fakeAPI) did() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer clear(a.count)
	return maps.Clone(a.count)
}

// RoundTrip implements http.RoundTripper.
func (a *fakeAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(callTime)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count["requests"]++
	switch a.wrong {
	case away:
		return nil, &url.Error{Op: "Get", URL: r.URL.String(), Err: syscall.ECONNREFUSED}
	case tooMany:
		resp := answer(http.StatusTooManyRequests, rawStatus(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests).Raw)
		resp.Header.Set("Retry-After", "5")
		return resp, nil
	case broken:
		return answer(http.StatusInternalServerError, rawStatus(http.StatusInternalServerError, metav1.StatusReasonInternalError).Raw), nil
	case half:
		resp := answer(http.StatusOK, nil)
		resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"p`), failing{}))
		return resp, nil
	case hanging:
		mended := a.mended
		a.mu.Unlock()
		defer a.mu.Lock()
		select {
		case <-r.Context().Done():
			return nil, r.Context().Err()
		case <-mended:
			return nil, errors.New("connection reset by peer")
		}
	}
	return a.serveLocked(r)
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func (a *fakeAPI) serveLocked(r *http.Request) (*http.Response, error) {
	query := r.URL.Query()
	switch {
	case r.Method == http.MethodGet && r.URL.Path == "/api/v1/pods" && query.Get("watch") != "":
		return a.watchLocked(query), nil
	case r.Method == http.MethodGet && r.URL.Path == "/api/v1/pods":
		list := v1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(a.version)}}
		list.Kind, list.APIVersion = "PodList", "v1"
		for _, p := range a.pods {
			list.Items = append(list.Items, *p)
		}
		text, _ := json.Marshal(list)
		return answer(http.StatusOK, text), nil
	}
	words := strings.Split(strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/default/pods/"), "/")
	p := a.pods[words[0]]
	if p == nil {
		return answer(http.StatusNotFound, rawStatus(http.StatusNotFound, metav1.StatusReasonNotFound).Raw), nil
	}
	if r.Method == http.MethodDelete && len(words) == 1 {
		a.count["delete "+p.Name]++
		text, _ := json.Marshal(p)
		a.removeLocked(p.Name)
		return answer(http.StatusOK, text), nil
	}
	if r.Method != http.MethodPatch || len(words) != 2 || words[1] != "status" {
		a.t.Errorf("unexpected request: %s %s", r.Method, r.URL)
		return answer(http.StatusMethodNotAllowed, nil), nil
	}
	patch, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	return a.patchLocked(p, patch), nil
}

func (a *fakeAPI) patchLocked(p *v1.Pod, patch []byte) *http.Response {
	var about struct{ Metadata struct{ UID pod.UID } }
	if err := json.Unmarshal(patch, &about); err != nil || about.Metadata.UID != p.UID {
		return answer(http.StatusConflict, rawStatus(http.StatusConflict, metav1.StatusReasonConflict).Raw)
	}
	before, _ := json.Marshal(p)
	after, err := strategicpatch.StrategicMergePatch(before, patch, v1.Pod{})
	next := &v1.Pod{}
	if err := errors.Join(err, json.Unmarshal(after, next)); err != nil {
		a.t.Errorf("patch of %s: %v", p.Name, err)
		return answer(http.StatusBadRequest, nil)
	}
	a.count["patch "+p.Name]++
	a.storeLocked("MODIFIED", next)
	next.Kind, next.APIVersion = "Pod", "v1"
	text, _ := json.Marshal(next)
	return answer(http.StatusOK, text)
}

// watchLocked begins a watch: from the version on which the client has, or with all pods
// (sendInitialEvents).
func (a *fakeAPI) watchLocked(query url.Values) *http.Response {
	from, _ := strconv.Atoi(query.Get("resourceVersion"))
	initial := query.Get("sendInitialEvents") == "true"
	if !initial && from < a.oldest {
		a.count["gone"]++
		return answer(http.StatusGone, rawStatus(http.StatusGone, metav1.StatusReasonExpired).Raw)
	}
	w := newAPIWatch()
	a.watches[w] = true
	for _, p := range a.pods {
		if version, _ := strconv.Atoi(p.ResourceVersion); initial || version > from {
			w.send(event("ADDED", p))
		}
	}
	if initial {
		mark := &v1.Pod{}
		mark.ResourceVersion = strconv.Itoa(a.version)
		mark.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		w.send(event("BOOKMARK", mark))
	}
	resp := answer(http.StatusOK, nil)
	resp.Body = w
	return resp
}

func rawStatus(code int32, reason metav1.StatusReason) (out k8sruntime.RawExtension) {
	out.Raw, _ = json.Marshal(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: code, Reason: reason, Message: fmt.Sprint(reason)})
	return out
}

func answer(code int, body []byte) *http.Response {
	return &http.Response{
		StatusCode: code, Status: fmt.Sprintf("%d %s", code, http.StatusText(code)), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}
}

// apiWatch is the body of a watch: what is sent can be read, and never blocks the sender.
type apiWatch struct {
	mu     sync.Mutex
	text   []byte
	closed bool
	more   chan struct{} // capacity 1
}

func newAPIWatch() *apiWatch { return &apiWatch{more: make(chan struct{}, 1)} }

// send appends an event; nil ends the watch.
func (w *apiWatch) send(text []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text, w.closed = append(w.text, text...), w.closed || text == nil
	select {
	case w.more <- struct{}{}:
	default:
	}
}

func (w *apiWatch) Read(b []byte) (int, error) {
	for {
		w.mu.Lock()
		n, closed := copy(b, w.text), w.closed
		w.text = w.text[n:]
		w.mu.Unlock()
		if n > 0 {
			return n, nil
		}
		if closed {
			return 0, io.EOF
		}
		<-w.more
	}
}

// Close implements io.Closer.
func (w *apiWatch) Close() error {
	w.send(nil)
	return nil
}
