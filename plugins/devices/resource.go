package devices

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"podd/internal/pluginconn"
)

const (
	// maxResources bounds the number of resources, including those of earlier plugins.
	maxResources = 256
	// maxDeviceID is in bytes.
	maxDeviceID = 1024
)

// resource is what is known about one extended resource that a plugin has, or had.
type resource struct {
	plugin  *plugin // nil for none
	options pluginapi.DevicePluginOptions
	// everRegistered says that its plugin has listed devices or has ended, in the life of this podd
	// or an earlier one.
	everRegistered bool
	// listed says that this podd has received its devices.
	listed  bool
	devices map[string]device
	// stoppedAt is the time since which there is no plugin.
	stoppedAt time.Time
	// gone says that there has been no plugin for so long that the node no longer has the
	// resource.
	gone bool
}

// device is a device in a plugin's newest list.
type device struct {
	healthy   bool
	numaNodes []int64 // the machine's NUMA nodes that it is close to
}

func (r *resource) healthyIDs() (ids []string) {
	for id, d := range r.devices {
		if d.healthy {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func (r *resource) allHealthy(ids []string) bool {
	return !slices.ContainsFunc(ids, func(id string) bool { return !r.devices[id].healthy })
}

// isExtendedResource says whether plugins may provide a resource of that name (upstream's
// IsExtendedResourceName).
func isExtendedResource(name string) bool {
	return strings.Contains(name, "/") && !strings.Contains(name, v1.ResourceDefaultNamespacePrefix) &&
		!strings.HasPrefix(name, v1.DefaultResourceRequestsPrefix) && len(validation.IsQualifiedName(v1.DefaultResourceRequestsPrefix+name)) == 0
}

// devicesOf checks a plugin's list. For a device that is listed twice, the last entry
// counts.
func devicesOf(list []*pluginapi.Device) (map[string]device, error) {
	all := make(map[string]device, len(list))
	for _, d := range list {
		if id := d.GetID(); id == "" || len(id) > maxDeviceID || !utf8.ValidString(id) {
			return nil, fmt.Errorf("a device has the ID %q: want 1 to %d bytes of UTF-8", shorten(id), maxDeviceID)
		}
		one := device{healthy: d.GetHealth() == pluginapi.Healthy}
		for _, n := range d.GetTopology().GetNodes() {
			if len(one.numaNodes) < maxNUMANodes {
				one.numaNodes = append(one.numaNodes, n.GetID())
			}
		}
		all[d.GetID()] = one
	}
	return all, nil
}

// maxNUMANodes is more NUMA nodes than any machine has.
const maxNUMANodes = 64

// updateDevices processes a plugin's list.
func (m *Manager) updateDevices(name string, pl *plugin, list []*pluginapi.Device) error {
	devices, err := devicesOf(list)
	if err != nil {
		return err
	}
	var n notification
	m.mu.Lock()
	r := m.resources[name]
	if r == nil || r.plugin != pl {
		m.mu.Unlock()
		return nil // another one has its place
	}
	first := !r.listed
	same := !first && maps.EqualFunc(r.devices, devices, func(a, b device) bool { return a.healthy == b.healthy && slices.Equal(a.numaNodes, b.numaNodes) })
	if !same {
		m.unsaved = m.unsaved || !r.everRegistered
		r.devices, r.everRegistered, r.listed = devices, true, true
		m.confirmGrantsLocked(name, r)
		m.addUsersLocked(name, &n)
		m.newGenerationLocked(&n)
		n.nodeChanged = true
	}
	m.mu.Unlock()
	if level := slog.LevelInfo; !same {
		if !first {
			level = slog.LevelDebug // as often as the plugin likes; pods' statuses show it
		}
		m.log.Log(context.Background(), level, "device plugin has listed its devices", "resource", name, "devices", len(devices), "healthy", len((&resource{devices: devices}).healthyIDs()))
	}
	m.notify(n)
	m.loop.Wake()
	return nil
}

// confirmGrantsLocked confirms the grants that pods had before podd started.
func (m *Manager) confirmGrantsLocked(name string, r *resource) {
	for _, o := range m.pods {
		for _, grants := range o.containers {
			if g := grants[name]; g != nil && r.allHealthy(g.ids) {
				g.seenHealthy = true
			}
		}
	}
}

// addUsersLocked adds the pods that have devices of a resource to a notification.
func (m *Manager) addUsersLocked(name string, n *notification) {
	for uid, o := range m.pods {
		for _, grants := range o.containers {
			if grants[name] != nil {
				n.addPod(uid)
			}
		}
	}
}

// handlePluginEnd says that a plugin no longer lists its devices.
func (m *Manager) handlePluginEnd(name string, pl *plugin) {
	var n notification
	m.mu.Lock()
	r := m.resources[name]
	last := r != nil && r.plugin == pl
	if last {
		// If its plugin has listed nothing, the resource still exists, with no devices.
		m.unsaved = m.unsaved || !r.everRegistered
		r.plugin, r.stoppedAt, r.everRegistered = nil, time.Now(), true
		for id, d := range r.devices {
			r.devices[id] = device{numaNodes: d.numaNodes}
		}
		m.addUsersLocked(name, &n)
		n.nodeChanged = true
	}
	m.mu.Unlock()
	m.notify(n)
	m.loop.Wake()
}

// Resources returns the extended resources of the Node, in whole devices: capacity counts
// all listed devices, allocatable the healthy ones. A resource that is gone counts 0, so that
// the Node says so.
func (m *Manager) Resources() (capacity, allocatable v1.ResourceList) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.resources) == 0 {
		return nil, nil
	}
	capacity, allocatable = v1.ResourceList{}, v1.ResourceList{}
	for name, r := range m.resources {
		if r.everRegistered {
			capacity[v1.ResourceName(name)] = *quantity.NewQuantity(int64(len(r.devices)), quantity.DecimalSI)
			allocatable[v1.ResourceName(name)] = *quantity.NewQuantity(int64(len(r.healthyIDs())), quantity.DecimalSI)
		}
	}
	return capacity, allocatable
}

func shorten(text string) string { return pluginconn.Shorten(text) }
