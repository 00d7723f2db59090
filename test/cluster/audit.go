package cluster

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// Request is one that the apiserver was sent.
type Request struct {
	At time.Time
	// Verb is the API's: get, list, watch, create, update, patch, delete.
	Verb, User, Agent string
	// Resource has the subresource after a slash. What has no such thing has its path.
	Resource, Namespace, Name string
	Code                      int
}

// What says what is requested, without the object that it is about.
func (r Request) What() string { return r.Verb + " " + r.Resource }

func (r Request) String() string {
	return fmt.Sprintf("%s %s %s/%s (%d)", r.At.Format("15:04:05.000"), r.What(), r.Namespace, r.Name, r.Code)
}

// auditPolicy has an apiserver note the requests of nodes, each as its answer begins.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, userGroups: ["system:nodes"]}
- {level: None}
`

// auditFlags are for Audit.
func (a *APIServer) auditFlags() []string {
	if !a.Audit {
		return nil
	}
	return []string{"--audit-policy-file=" + a.path("audit-policy.yaml"), "--audit-log-path=" + a.path("audit.log"), "--audit-log-maxsize=1000"}
}

// Requests are those that a node has sent since a time, in their order; with Audit.
func (a *APIServer) Requests(node string, since time.Time) ([]Request, error) {
	text, err := os.ReadFile(a.path("audit.log"))
	if err != nil {
		return nil, fmt.Errorf("read what the apiserver was asked: %w", err)
	}
	return requestsOf(text, "system:node:"+node, since)
}

// requestsOf reads a log of audit.k8s.io/v1, whose last line may not be whole yet. A request
// that lasts is in it twice.
func requestsOf(log []byte, user string, since time.Time) (all []Request, err error) {
	seen := map[string]bool{}
	lines := bufio.NewScanner(bytes.NewReader(log[:bytes.LastIndexByte(log, '\n')+1]))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e struct {
			AuditID, Verb, RequestURI, UserAgent string
			RequestReceivedTimestamp             time.Time
			User                                 struct{ Username string }
			ObjectRef                            struct{ Resource, Subresource, Namespace, Name string }
			ResponseStatus                       struct{ Code int }
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("read what the apiserver was asked: %w", err)
		}
		if e.User.Username != user || e.RequestReceivedTimestamp.Before(since) || seen[e.AuditID] {
			continue
		}
		seen[e.AuditID] = true
		what := e.ObjectRef.Resource
		if e.ObjectRef.Subresource != "" {
			what += "/" + e.ObjectRef.Subresource
		}
		if what == "" {
			what, _, _ = strings.Cut(e.RequestURI, "?")
		}
		all = append(all, Request{
			At: e.RequestReceivedTimestamp, Verb: e.Verb, User: user, Agent: e.UserAgent, Resource: what,
			Namespace: e.ObjectRef.Namespace, Name: e.ObjectRef.Name, Code: e.ResponseStatus.Code,
		})
	}
	slices.SortStableFunc(all, func(x, y Request) int { return x.At.Compare(y.At) })
	return all, lines.Err()
}
