package dra

import (
	"fmt"
	"maps"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"podd/internal/pluginconn"
)

const (
	// maxName bounds names in a driver's response, in bytes; maxCDI bounds the name of a
	// CDI device, and maxNames the number of either in one device.
	maxName, maxCDI, maxNames = validation.DNS1123SubdomainMaxLength, 1024, 64
)

// claimResult is what drivers return for one claim, from either call.
type claimResult interface{ GetError() string }

// checkResults checks that a driver has returned success for each claim, and for no other, by
// upstream's rules and in its words.
func checkResults[R claimResult](method string, claims []*claim, results map[string]R) error {
	for _, uid := range slices.Sorted(maps.Keys(results)) {
		at := slices.IndexFunc(claims, func(c *claim) bool { return string(c.uid) == uid })
		if at < 0 {
			return fmt.Errorf("%s returned result for unknown claim UID %s", method, pluginconn.Shorten(uid))
		}
		if text := results[uid].GetError(); text != "" {
			return fmt.Errorf("%s failed for ResourceClaim %s: %s", method, claims[at].name, pluginconn.Shorten(text))
		}
	}
	if missing := len(claims) - len(results); missing != 0 {
		return fmt.Errorf("%s skipped %d ResourceClaims", method, missing)
	}
	return nil
}

// preparedDevices returns the devices that a driver has prepared, for each of the claims.
func preparedDevices(claims []*claim, response *drapb.NodePrepareResourcesResponse) (all [][]device, err error) {
	if err := checkResults("NodePrepareResources", claims, response.GetClaims()); err != nil {
		return nil, err
	}
	for _, c := range claims {
		devices, err := devicesOf(response.GetClaims()[string(c.uid)].GetDevices())
		if err != nil {
			return nil, fmt.Errorf("NodePrepareResources for ResourceClaim %s: %w", c.name, err)
		}
		all = append(all, devices)
	}
	return all, nil
}

// devicesOf checks devices before they are written down and passed to the runtime.
func devicesOf(list []*drapb.Device) ([]device, error) {
	if len(list) > maxResults {
		return nil, fmt.Errorf("the driver has prepared %d devices, and %d are the most", len(list), maxResults)
	}
	devices := []device{}
	for _, d := range list {
		if len(d.GetCdiDeviceIds()) > maxNames || len(d.GetRequestNames()) > maxNames {
			return nil, fmt.Errorf("a device has %d CDI devices and %d requests, and %d are the most", len(d.GetCdiDeviceIds()), len(d.GetRequestNames()), maxNames)
		}
		for _, name := range append([]string{d.GetPoolName(), d.GetDeviceName(), d.GetShareId()}, d.GetRequestNames()...) {
			if len(name) > 2*maxName { // a request and a subrequest
				return nil, fmt.Errorf("a device has the name %q: want %d bytes at most", pluginconn.Shorten(name), 2*maxName)
			}
		}
		for _, name := range d.GetCdiDeviceIds() {
			if len(name) > maxCDI || !qualifiedCDIName.MatchString(name) {
				return nil, fmt.Errorf("%q is not the name of a CDI device (vendor/class=name)", pluginconn.Shorten(name))
			}
		}
		devices = append(devices, device{Pool: d.GetPoolName(), Name: d.GetDeviceName(), Share: d.ShareId, Requests: d.GetRequestNames(), CDI: d.GetCdiDeviceIds()})
	}
	return devices, nil
}

// qualifiedCDIName is a qualified name of the Container Device Interface's specification
// (github.com/cncf-tags/container-device-interface, SPEC.md, "kind" and "devices").
var qualifiedCDIName = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?/[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?=[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?$`)
