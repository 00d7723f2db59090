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
	// known says that its plugin has listed devices or has ended, in the life of this podd
	// or an earlier one.
	known bool
	// listed says that this podd has received its devices.
	listed  bool
	devices map[string]device
	// stopped is the time since which there is no plugin.
	stopped time.Time
	// gone says that there has been no plugin for so long that the node no longer has the
	// resource.
	gone bool
}

// device is a device in a plugin's newest list.
type device struct {
	healthy bool
	nodes   []int64 // the machine's NUMA nodes that it is close to
}

func (r *resource) healthy() (ids []string) {
	for id, d := range r.devices {
		if d.healthy {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func (r *resource) hasHealthy(ids []string) bool {
	return !slices.ContainsFunc(ids, func(id string) bool { return !r.devices[id].healthy })
}

// extended says whether plugins may provide a resource of that name (upstream's
// IsExtendedResourceName).
func extended(name string) bool {
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
			if len(one.nodes) < maxNodes {
				one.nodes = append(one.nodes, n.GetID())
			}
		}
		all[d.GetID()] = one
	}
	return all, nil
}

// maxNodes is more NUMA nodes than any machine has.
const maxNodes = 64

// list processes a plugin's list.
func (m *Manager) list(name string, pl *plugin, list []*pluginapi.Device) error {
	devices, err := devicesOf(list)
	if err != nil {
		return err
	}
	var n news
	m.mu.Lock()
	r := m.resources[name]
	if r == nil || r.plugin != pl {
		m.mu.Unlock()
		return nil // another one has its place
	}
	first := !r.listed
	same := !first && maps.EqualFunc(r.devices, devices, func(a, b device) bool { return a.healthy == b.healthy && slices.Equal(a.nodes, b.nodes) })
	if !same {
		m.unsaved = m.unsaved || !r.known
		r.devices, r.known, r.listed = devices, true, true
		m.confirmLocked(name, r)
		m.ownersLocked(name, &n)
		m.betterLocked(&n)
		n.node = true
	}
	m.mu.Unlock()
	if level := slog.LevelInfo; !same {
		if !first {
			level = slog.LevelDebug // as often as the plugin likes; pods' statuses show it
		}
		m.log.Log(context.Background(), level, "device plugin has listed its devices", "resource", name, "devices", len(devices), "healthy", len((&resource{devices: devices}).healthy()))
	}
	m.tell(n)
	m.loop.Wake()
	return nil
}

// confirmLocked confirms the grants that pods had before podd started.
func (m *Manager) confirmLocked(name string, r *resource) {
	for _, o := range m.pods {
		for _, grants := range o.containers {
			if g := grants[name]; g != nil && r.hasHealthy(g.ids) {
				g.confirmed = true
			}
		}
	}
}

// ownersLocked adds the pods that have devices of a resource to the news.
func (m *Manager) ownersLocked(name string, n *news) {
	for uid, o := range m.pods {
		for _, grants := range o.containers {
			if grants[name] != nil {
				n.of(uid)
			}
		}
	}
}

// ended says that a plugin no longer lists its devices.
func (m *Manager) ended(name string, pl *plugin) {
	var n news
	m.mu.Lock()
	r := m.resources[name]
	last := r != nil && r.plugin == pl
	if last {
		// If its plugin has listed nothing, the resource still exists, with no devices.
		m.unsaved = m.unsaved || !r.known
		r.plugin, r.stopped, r.known = nil, time.Now(), true
		for id, d := range r.devices {
			r.devices[id] = device{nodes: d.nodes}
		}
		m.ownersLocked(name, &n)
		n.node = true
	}
	m.mu.Unlock()
	m.tell(n)
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
		if r.known {
			capacity[v1.ResourceName(name)] = *quantity.NewQuantity(int64(len(r.devices)), quantity.DecimalSI)
			allocatable[v1.ResourceName(name)] = *quantity.NewQuantity(int64(len(r.healthy())), quantity.DecimalSI)
		}
	}
	return capacity, allocatable
}

func shorten(text string) string { return pluginconn.Shorten(text) }
