package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	v1 "k8s.io/api/core/v1"

	"podd/server"
)

// nodeAddress is assigned in a network namespace of the test.
const nodeAddress = "10.209.7.1"

// TestEnvAndStatusNameOneNodeAddressWhenPoddStartsBeforeTheNetwork: a booting
// machine may have no address when podd starts. Once the environment of its
// containers then never got one, while their status did.
func TestEnvAndStatusNameOneNodeAddressWhenPoddStartsBeforeTheNetwork(t *testing.T) {
	d := newDaemon(t, 0)
	d.attr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	greet := d.srv.Hang("Version")
	d.put("web", "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  dnsPolicy: Default\n  containers: [{name: web, image: "+testImage+
		", env: [{name: NODE, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}]}]\n")
	d.start()
	var web *v1.Pod
	d.await("the pod shows though the runtime has not responded", func() bool {
		web = d.onlyPod()
		return web != nil && d.srv.Count("Version") > 0
	})
	if web.Status.Phase != v1.PodPending || web.Status.HostIP != "" {
		t.Errorf("before there is a network or a runtime: got %s on %q, want a pending pod on no address", web.Status.Phase, web.Status.HostIP)
	}
	addNetwork(t, d.cmd.Process.Pid)
	greet()
	d.await("the pod runs", func() bool {
		web = d.onlyPod()
		return web != nil && web.Status.Phase == v1.PodRunning
	})
	if web.Status.HostIP != nodeAddress {
		t.Errorf("status.hostIP: got %q, want %s", web.Status.HostIP, nodeAddress)
	}
	for _, call := range d.srv.Calls() {
		if r, ok := call.Request.(*runtimeapi.CreateContainerRequest); ok {
			for _, e := range r.Config.Envs {
				if e.Key == "NODE" && string(e.Value) != nodeAddress {
					t.Errorf("the variable of status.hostIP: got %q, want %s", e.Value, nodeAddress)
				}
			}
		}
	}
	d.stop()
}

// addNetwork sets up an address and a default route in the network namespace of
// a process.
func addNetwork(t *testing.T, pid int) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ns, err := netns.GetFromPid(pid)
	must(err)
	defer ns.Close()
	at, err := netlink.NewHandleAt(ns)
	must(err)
	defer at.Close()
	lo, err := at.LinkByName("lo")
	must(err)
	must(at.LinkSetUp(lo))
	address, err := netlink.ParseAddr(nodeAddress + "/24")
	must(err)
	must(at.AddrAdd(lo, address))
	must(at.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Src: net.ParseIP(nodeAddress)}))
}

// onlyPod queries the socket, which needs no network; it is nil while there is
// no response, or no pod.
func (d *daemon) onlyPod() *v1.Pod {
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(d.dir, "state", "podd.sock"))
	}}}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(d.t.Context(), http.MethodGet, "http://podd/podd/v1/pods", nil)
	if err != nil {
		d.t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil // not up yet
	}
	defer resp.Body.Close()
	var list server.Listing
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		d.t.Fatal(err)
	}
	if len(list.Pods) == 0 {
		return nil
	}
	return list.Pods[0].Pod
}
