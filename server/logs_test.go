package server

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
	"podd/podlogs"
)

type onePod struct{ p *v1.Pod }

func (o onePod) Pods() []*v1.Pod     { return []*v1.Pod{o.p} }
func (onePod) Origin(pod.UID) string { return "" }

func (f *fakeRuntime) Log(_ context.Context, _ *v1.Pod, id string) (podlogs.Log, error) {
	ended := make(chan struct{})
	close(ended)
	return podlogs.Log{Path: filepath.Join(f.logs, id+".log"), Ended: ended}, nil
}

func runsNow() v1.ContainerState {
	return v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.Now()}}
}

func exitedAs(id string) v1.ContainerState {
	return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ContainerID: id}}
}

func waitsFor(reason string) v1.ContainerState {
	return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}
}

func TestContainerLogs(t *testing.T) {
	dir := t.TempDir()
	for id, text := range map[string]string{"now": "the newest", "before": "the one before", "init": "done"} {
		if err := os.WriteFile(filepath.Join(dir, id+".log"), []byte("2026-01-02T03:04:05Z stdout F "+text+"\n"), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	p.Spec.InitContainers = []v1.Container{{Name: "init"}}
	for _, name := range []string{"main", "first", "pulling", "creating", "lost", "unknown", "new"} {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: name})
	}
	p.Status.InitContainerStatuses = []v1.ContainerStatus{{Name: "init", State: exitedAs("containerd://init")}}
	p.Status.ContainerStatuses = []v1.ContainerStatus{
		{Name: "main", ContainerID: "containerd://now", State: runsNow(), LastTerminationState: exitedAs("containerd://before")},
		{Name: "first", ContainerID: "containerd://now", State: runsNow()},
		{Name: "pulling", State: waitsFor("ImagePullBackOff")},
		{Name: "creating", State: waitsFor("ContainerCreating")},
		{Name: "new", State: waitsFor("ContainerCreating")},
		{Name: "lost", State: exitedAs("containerd://gone")},
	}
	s := New(Config{Socket: filepath.Join(dir, "s"), Pods: onePod{p}})
	s.Attach(&fakeRuntime{logs: dir})
	mux := http.NewServeMux()
	for _, r := range s.containersGroup().routes {
		mux.Handle(r.pattern, r.handler)
	}
	live := httptest.NewServer(mux)
	defer live.Close()
	for path, want := range map[string]struct {
		code int
		body string
	}{
		"shop/web/main":                         {200, "the newest\n"},
		"shop/web/main?previous=true":           {200, "the one before\n"},
		"shop/web/main?timestamps=true":         {200, "2026-01-02T03:04:05.000000000Z the newest\n"},
		"shop/web/main?follow=true&tailLines=1": {200, "the newest\n"},
		"shop/web/main?stream=Stderr":           {200, ""},
		"shop/web/new":                          {200, "the newest\n"}, // runs, and the status does not say so yet
		"shop/web/init":                         {200, "done\n"},
		"shop/web/first?previous=true":          {400, `previous terminated container "first" in pod "web" not found`},
		"shop/web/pulling":                      {400, `container "pulling" in pod "web" is waiting to start: trying and failing to pull image`},
		"shop/web/creating":                     {400, `container "creating" in pod "web" is waiting to start: ContainerCreating`},
		"shop/web/unknown":                      {400, `container "unknown" in pod "web" is not available`},
		"shop/web/lost":                         {404, `the log of container "lost" in pod "web" is not there any more`},
		"shop/web/none":                         {404, `container "none" not found in pod "web"`},
		"shop/none/main":                        {404, "pod does not exist"},
		"shop/web/main?tailLines=-1":            {422, `{"message":"tailLines: \"-1\" is not an integer of at least 0"}`},
		"shop/web/main?follow=maybe":            {422, `{"message":"follow: \"maybe\" is neither true nor false"}`},
		"shop/web/main?sinceTime=yesterday":     {422, `{"message":"sinceTime: \"yesterday\" is not a time as in RFC 3339"}`},
		"shop/web/main?stream=Both":             {422, `{"message":"stream: \"Both\" is not All, Stdout or Stderr"}`},
		"shop/web/main?sinceSeconds=1&sinceTime=2026-01-02T03:04:05Z": {422, "{\"message\":\"at most one of `sinceTime` or `sinceSeconds` may be specified\"}"},
	} {
		resp, err := http.Get(live.URL + "/containerLogs/" + path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != want.code || strings.TrimSuffix(string(got), "\n") != strings.TrimSuffix(want.body, "\n") {
			t.Errorf("%s: got %d %q, %v, want %d %q", path, resp.StatusCode, got, err, want.code, want.body)
		}
	}
}

func TestLogOptions(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	o, previous, streams, err := logOptions(url.Values{
		"follow": {"true"}, "previous": {"true"}, "timestamps": {"1"}, "limitBytes": {"7"}, "sinceSeconds": {"5"}, "stream": {"Stdout"},
	}, now)
	if err != nil || !o.Follow || !previous || !o.Timestamps || o.LimitBytes != 7 || !o.Since.Equal(now.Add(-5*time.Second)) || streams != "Stdout" || o.Tail != -1 {
		t.Errorf("got %+v, %t, %q, %v", o, previous, streams, err)
	}
	if o, _, _, err := logOptions(url.Values{"sinceSeconds": {"9223372036854775807"}}, now); err != nil || o.Since.After(now) {
		t.Errorf("of centuries: got %v, %v", o.Since, err)
	}
}
