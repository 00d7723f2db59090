package cri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/node/util/sysctl"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/internal/pod"
)

// The kubelet's reasons for pods whose sandbox could not be made.
const (
	reasonConfigSandbox = "ConfigPodSandboxError"
	reasonCreateSandbox = "CreatePodSandboxError"
)

// RunSandbox makes and starts a pod's sandbox, network included, and returns
// its ID. It blocks until the runtime has answered or ctx ends; what the runtime
// makes for a caller that has gone is found by the next look. When the answer
// is lost, the runtime is asked whether the sandbox runs nevertheless.
//
// Errors carry a reason (pod.ReasonError: ConfigPodSandboxError,
// CreatePodSandboxError) and, where it fits, a class: pod.ErrNetworkNotReady,
// pod.ErrUnavailable, pod.ErrNameReserved.
func (c *Client) RunSandbox(ctx context.Context, req pod.SandboxRequest) (string, error) {
	p := req.Pod
	handler, err := c.handlerFor(ctx, p)
	if err != nil {
		return "", pod.WithReason(reasonCreateSandbox, err)
	}
	config, notes, err := c.sandboxConfig(p, req.Attempt, req.Source, req.StartTime)
	if err != nil {
		return "", pod.WithReason(reasonConfigSandbox, err)
	}
	c.announce(p, notes)
	if err := os.MkdirAll(config.LogDirectory, 0o755); err != nil {
		return "", pod.WithReason(reasonConfigSandbox, fmt.Errorf("make the pod's log directory: %w", err))
	}
	start := time.Now()
	r, err := c.runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config, RuntimeHandler: handler})
	c.metrics.sandboxRun(handler, time.Since(start), err)
	if err == nil {
		c.own(r.PodSandboxId, p.UID)
		return r.PodSandboxId, nil
	}
	err = mapError("", err)
	if ambiguous(err) && ctx.Err() == nil {
		if id := c.findSandbox(ctx, config.Metadata); id != "" {
			c.log.Warn("sandbox exists although its creation was answered with an error", "pod", p.Namespace+"/"+p.Name, "sandbox", id, "error", err)
			c.own(id, p.UID)
			return id, nil
		}
	}
	return "", pod.WithReason(reasonCreateSandbox, err)
}

// findSandbox returns the ready sandbox of exactly that name and attempt, or "".
func (c *Client) findSandbox(ctx context.Context, meta *runtimeapi.PodSandboxMetadata) string {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	r, err := c.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
		State:         &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY},
		LabelSelector: map[string]string{labelPodUID: meta.Uid},
	}})
	if err != nil {
		return ""
	}
	for _, s := range r.Items {
		if s.Metadata.GetUid() == meta.Uid && s.Metadata.GetAttempt() == meta.Attempt && c.maker(pod.UID(meta.Uid), s.Annotations) == "" {
			return s.Id
		}
	}
	return ""
}

// StopSandbox ends what still runs in a sandbox and gives its network back. A
// sandbox that is not there is stopped.
func (c *Client) StopSandbox(ctx context.Context, id string) error {
	_, err := c.runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	if err := mapError("stop pod sandbox "+short(id), err); err != nil && !gone(err) {
		return err
	}
	return nil
}

// RemoveSandbox removes a stopped sandbox and its containers. A sandbox that
// is not there is removed.
func (c *Client) RemoveSandbox(ctx context.Context, id string) error {
	_, err := c.runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	if err := mapError("remove pod sandbox "+short(id), err); err != nil && !gone(err) {
		return err
	}
	c.links.removeSandbox(id)
	c.forget(id)
	return nil
}

func (c *Client) sandboxConfig(p *v1.Pod, attempt uint32, source pod.Source, start time.Time) (*runtimeapi.PodSandboxConfig, dnsNotes, error) {
	config := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: p.Name, Namespace: p.Namespace, Uid: string(p.UID), Attempt: attempt},
		LogDirectory: podLogDir(c.opts.PodLogsDir, p.Namespace, p.Name, p.UID),
		PortMappings: portMappings(p),
		Labels:       podLabels(p),
		Annotations:  podAnnotations(p, c.opts.Instance, source, start),
	}
	dns, notes, err := c.dnsConfig(p)
	if err != nil {
		return nil, notes, err
	}
	config.DnsConfig = dns
	if !p.Spec.HostNetwork {
		if config.Hostname, err = kernelHostname(p, c.opts.ClusterDomain); err != nil {
			return nil, notes, err
		}
	}
	security, err := sandboxSecurity(p)
	if err != nil {
		return nil, notes, err
	}
	if security.NamespaceOptions.UsernsOptions, err = c.userNamespace(p); err != nil {
		return nil, notes, err
	}
	config.Linux = &runtimeapi.LinuxPodSandboxConfig{
		SecurityContext: security,
		Sysctls:         map[string]string{},
		Overhead:        overheadResources(c.opts, p),
		Resources:       sandboxResources(c.opts, p),
	}
	if c.opts.CgroupParent != nil {
		config.Linux.CgroupParent = c.opts.CgroupParent(p)
	}
	if sc := p.Spec.SecurityContext; sc != nil {
		for _, s := range sc.Sysctls {
			// Runtimes know the notation with dots only, and containerd adds its
			// own default for what it does not find under that name. Of two
			// notations of one sysctl the later holds, as in the kubelet.
			config.Linux.Sysctls[sysctl.NormalizeName(s.Name)] = s.Value
		}
	}
	return config, notes, nil
}

// dnsConfig reads the node's resolver configuration anew for each sandbox: it
// changes with the network, and it is one small file.
func (c *Client) dnsConfig(p *v1.Pod) (*runtimeapi.DNSConfig, dnsNotes, error) {
	var node resolvConf
	var err error
	none := c.opts.ResolvConf != nil && *c.opts.ResolvConf == ""
	if !none && p.Spec.DNSPolicy != v1.DNSNone {
		if node, err = nodeResolvConf(c.opts.ResolvConf); err != nil {
			return nil, dnsNotes{}, err
		}
	}
	var local []string
	if none {
		local = localResolvers(c.opts.NodeIPs)
	}
	d, notes := podDNS(p, node, local, c.opts.ClusterDNS, c.opts.ClusterDomain)
	return d, notes, nil
}

// announce says once a sandbox what of the pod's DNS could not be had.
func (c *Client) announce(p *v1.Pod, notes dnsNotes) {
	// Where nobody configured a cluster's DNS at all, ClusterFirst is only the
	// default that nobody chose: not worth a warning for each pod.
	if notes.noClusterDNS && c.opts.ClusterDomain != "" {
		c.opts.event(p, v1.EventTypeWarning, "MissingClusterDNS", fmt.Sprintf(
			"pod: %q. podd does not have ClusterDNS IP configured and cannot create Pod using %q policy. Falling back to %q policy.",
			p.Name+"_"+p.Namespace+"("+string(p.UID)+")", v1.DNSClusterFirst, v1.DNSDefault))
	}
	for _, n := range notes.limits {
		c.opts.event(p, v1.EventTypeWarning, "DNSConfigForming", n)
	}
}

// systemdResolved is where systemd-resolved writes the real servers, beside
// the stub that it puts into /etc/resolv.conf.
const systemdResolved = "/run/systemd/resolve/resolv.conf"

func nodeResolvConf(path *string) (resolvConf, error) {
	name := "/etc/resolv.conf"
	if path != nil {
		name = *path
	}
	rc, err := readResolvConf(name)
	if err != nil {
		if path == nil && errors.Is(err, fs.ErrNotExist) {
			return resolvConf{}, nil // a node without a resolver still runs pods
		}
		return rc, err
	}
	if path == nil && rc.stubOnly() {
		if real, err := readResolvConf(systemdResolved); err == nil {
			return real, nil
		}
	}
	return rc, nil
}

func readResolvConf(name string) (resolvConf, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return resolvConf{}, fmt.Errorf("read the node's resolver configuration: %w", err)
	}
	rc, err := parseResolvConf(string(text))
	if err != nil {
		return rc, fmt.Errorf("parse %s: %w", name, err)
	}
	return rc, nil
}

// short is enough of an ID to find it with crictl.
func short(id string) string {
	if len(id) > 13 {
		return id[:13]
	}
	return id
}
