package cluster

import (
	"fmt"
	"testing"
	"time"
)

func TestRequestsAreReadFromTheAuditLog(t *testing.T) {
	line := func(id, stage, verb, uri, at, user, object string) string {
		return fmt.Sprintf(`{"kind":"Event","auditID":%q,"stage":%q,"verb":%q,"requestURI":%q,"requestReceivedTimestamp":%q,"user":{"username":%q}%s,"responseStatus":{"code":200}}`+"\n", id, stage, verb, uri, at, user, object)
	}
	const early, late, later = "2026-01-02T03:04:05.000000Z", "2026-01-02T03:04:06.000000Z", "2026-01-02T03:04:07.000000Z"
	log := line("1", "ResponseComplete", "get", "/api", early, "system:node:n", "") +
		line("2", "ResponseStarted", "watch", "/x", later, "system:node:n", `,"objectRef":{"resource":"secrets","namespace":"default","name":"s"}`) +
		line("2", "ResponseComplete", "watch", "/x", later, "system:node:n", `,"objectRef":{"resource":"secrets","namespace":"default","name":"s"}`) +
		line("3", "ResponseComplete", "patch", "/x", late, "system:node:n", `,"objectRef":{"resource":"nodes","name":"n","subresource":"status"}`) +
		line("4", "ResponseComplete", "get", "/healthz?verbose", late, "system:node:n", "") +
		line("5", "ResponseComplete", "get", "/healthz", late, "system:node:other", "") + `{"kind":"Eve`
	since, err := time.Parse(time.RFC3339, late)
	if err != nil {
		t.Fatal(err)
	}
	all, err := requestsOf([]byte(log), "system:node:n", since)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range all {
		got = append(got, r.What()+" "+r.Name)
	}
	if want := "[patch nodes/status n get /healthz  watch secrets s]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
	if _, err := requestsOf([]byte("{\n"), "n", since); err == nil {
		t.Error("a line that is no event was read")
	}
}
