package dra

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	healthapi "k8s.io/kubelet/pkg/apis/dra-health/v1"
	healthalpha "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"

	"podd/internal/pluginconn"
	"podd/internal/pod"
	"podd/internal/text"
)

const (
	// maxReportedDevices bounds the devices with a health report from one instance.
	maxReportedDevices = 10000
	// maxHealthTTL bounds how long a report may claim to be valid.
	maxHealthTTL = 365 * 24 * time.Hour
)

type deviceKey struct{ pool, name string }

// deviceHealth is an instance's report about a device, until it expires.
type deviceHealth struct {
	health   v1.ResourceHealthStatus
	message  string
	validFor time.Duration
	expires  time.Time
}

func (h *deviceHealth) equal(o *deviceHealth) bool {
	return h.health == o.health && h.message == o.message && h.validFor == o.validFor
}

// followHealth reads an instance's reports about the health of its devices (KEP-4680) until
// ctx ends. It does not ask an instance again that knows no version of the call.
func (m *Manager) followHealth(ctx context.Context, i *instance) {
	for clients := i.health; len(clients) > 0; {
		err := m.receiveHealth(ctx, clients[0], i)
		m.forgetHealth(i)
		if ctx.Err() != nil {
			return
		}
		if status.Code(err) == codes.Unimplemented {
			clients = clients[1:]
			continue
		}
		m.log.Debug("a DRA driver reports no health any more: asking again", "driver", i.driver, "error", pluginconn.Shorten(err.Error()), "retry_in", m.times.healthRetry)
		select {
		case <-ctx.Done():
			return
		case <-time.After(m.times.healthRetry):
		}
	}
}

// alphaHealth calls v1alpha1, which has the messages of v1.
type alphaHealth struct{ conn grpc.ClientConnInterface }

// NodeWatchResources implements healthapi.DRAResourceHealthClient.
func (a alphaHealth) NodeWatchResources(ctx context.Context, request *healthapi.NodeWatchResourcesRequest, options ...grpc.CallOption) (grpc.ServerStreamingClient[healthapi.NodeWatchResourcesResponse], error) {
	stream, err := a.conn.NewStream(ctx, &healthalpha.DRAResourceHealth_ServiceDesc.Streams[0], healthalpha.DRAResourceHealth_NodeWatchResources_FullMethodName, options...)
	if err != nil {
		return nil, err
	}
	watch := &grpc.GenericClientStream[healthapi.NodeWatchResourcesRequest, healthapi.NodeWatchResourcesResponse]{ClientStream: stream}
	if err := stream.SendMsg(request); err != nil {
		return nil, err
	}
	return watch, stream.CloseSend()
}

// receiveHealth reads reports. It returns the reason why there are no more, never nil.
func (m *Manager) receiveHealth(ctx context.Context, client healthapi.DRAResourceHealthClient, i *instance) error {
	stream, err := client.NodeWatchResources(ctx, &healthapi.NodeWatchResourcesRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	for {
		response, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := m.applyHealthReport(i, response.GetDevices()); err != nil {
			return err
		}
	}
}

// applyHealthReport records a report. A device that it does not name keeps its health until that
// expires.
func (m *Manager) applyHealthReport(i *instance, list []*healthapi.DeviceHealth) error {
	now := time.Now()
	changed := map[deviceKey]bool{}
	m.mu.Lock()
	for _, d := range list {
		key := deviceKey{d.GetDevice().GetPoolName(), d.GetDevice().GetDeviceName()}
		old, known := i.devices[key]
		if len(key.pool) > 2*maxName || len(key.name) > 2*maxName || !known && len(i.devices) >= maxReportedDevices {
			m.mu.Unlock()
			return fmt.Errorf("the health of a device named %q is reported: want %d devices at most, and %d bytes", pluginconn.Shorten(key.name), maxReportedDevices, 2*maxName)
		}
		next := m.healthOf(d, now)
		if !known || !old.equal(&next) {
			changed[key] = true
		}
		i.devices[key] = next
	}
	pods := m.usersLocked(i.driver, changed)
	m.mu.Unlock()
	m.wakePods(pods)
	m.loop.Wake()
	return nil
}

func (m *Manager) healthOf(d *healthapi.DeviceHealth, now time.Time) deviceHealth {
	h := deviceHealth{health: v1.ResourceHealthStatusUnknown, message: messageOf(d.GetMessage()), validFor: m.times.healthTTL}
	switch d.GetHealth() {
	case healthapi.HealthStatus_HEALTHY:
		h.health = v1.ResourceHealthStatusHealthy
	case healthapi.HealthStatus_UNHEALTHY:
		h.health = v1.ResourceHealthStatusUnhealthy
	case healthapi.HealthStatus_UNKNOWN:
	}
	if seconds := d.GetHealthCheckTimeoutSeconds(); seconds > 0 {
		h.validFor = time.Duration(min(seconds, int64(maxHealthTTL/time.Second))) * time.Second
	}
	h.expires = now.Add(h.validFor)
	return h
}

// messageOf cuts a message as upstream does, but only between characters.
func messageOf(message string) string {
	if len(message) <= v1.ResourceHealthMessageMaxLength {
		return message
	}
	const mark = "..."
	return text.TruncateWith(message, v1.ResourceHealthMessageMaxLength-len(mark), mark)
}

// forgetHealth drops an instance's reports.
func (m *Manager) forgetHealth(i *instance) {
	m.mu.Lock()
	gone := map[deviceKey]bool{}
	for key := range i.devices {
		gone[key] = true
	}
	clear(i.devices)
	pods := m.usersLocked(i.driver, gone)
	m.mu.Unlock()
	m.wakePods(pods)
}

// expireHealthLocked drops reports that are too old, and returns the pods with the affected
// devices.
func (m *Manager) expireHealthLocked(due func(time.Time) bool) map[pod.UID]bool {
	all := map[pod.UID]bool{}
	for driver, instances := range m.drivers {
		for _, i := range instances {
			stale := map[deviceKey]bool{}
			for key, h := range i.devices {
				if due(h.expires) {
					stale[key] = true
					delete(i.devices, key)
				}
			}
			if len(stale) > 0 {
				maps.Copy(all, m.usersLocked(driver, stale))
			}
		}
	}
	return all
}

// Health returns the health of the devices that the regular containers of a pod have by its
// claims, by container; nil for none. The names are upstream's: "claim:NAME" and
// "claim:NAME/REQUEST", as the container has them. It never blocks.
func (m *Manager) Health(p *v1.Pod) map[string][]v1.ResourceStatus {
	if len(p.Spec.ResourceClaims) == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var all map[string][]v1.ResourceStatus
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		for _, wants := range c.Resources.Claims {
			s := m.resourceStatusLocked(p, wants)
			known := func(o v1.ResourceStatus) bool { return o.Name == s.Name }
			if len(s.Resources) == 0 || slices.ContainsFunc(all[c.Name], known) {
				continue
			}
			if all == nil {
				all = map[string][]v1.ResourceStatus{}
			}
			all[c.Name] = append(all[c.Name], s)
		}
	}
	return all
}

// resourceStatusLocked returns a status without resources if the claim is not prepared.
func (m *Manager) resourceStatusLocked(p *v1.Pod, wants v1.ResourceClaim) v1.ResourceStatus {
	s := v1.ResourceStatus{Name: v1.ResourceName("claim:" + wants.Name)}
	if wants.Request != "" {
		s.Name += v1.ResourceName("/" + wants.Request)
	}
	at := slices.IndexFunc(p.Spec.ResourceClaims, func(c v1.PodResourceClaim) bool { return c.Name == wants.Name })
	if at < 0 {
		return s
	}
	name, _, err := nameOf(p, &p.Spec.ResourceClaims[at])
	of := m.claims[keyOf(p.Namespace, name)]
	if err != nil || of == nil || !of.pods[p.UID] {
		return s
	}
	for _, d := range of.devicesFor([]string{wants.Request}) {
		h := m.deviceHealthLocked(d)
		if !slices.ContainsFunc(s.Resources, func(o v1.ResourceHealth) bool { return o.ResourceID == h.ResourceID }) {
			s.Resources = append(s.Resources, h)
		}
	}
	return s
}

// deviceHealthLocked returns the health of a device from the newest instance that knows it.
func (m *Manager) deviceHealthLocked(d driverDevice) v1.ResourceHealth {
	r := v1.ResourceHealth{ResourceID: v1.ResourceID(d.driver + "/" + d.Pool + "/" + d.Name), Health: v1.ResourceHealthStatusUnknown}
	if len(d.CDI) > 0 {
		r.ResourceID = v1.ResourceID(d.CDI[0])
	}
	for _, i := range slices.Backward(m.drivers[d.driver]) {
		if h, known := i.devices[deviceKey{d.Pool, d.Name}]; known {
			r.Health = h.health
			if h.message != "" {
				r.Message = &h.message
			}
			break
		}
	}
	return r
}
