package systemd

import "embed"

// The names of podd's units.
const (
	AgentUnit   = "podd.service"
	RuntimeUnit = "podd-runtime.service"
)

// Units holds the unit files under units/, as `make install` installs them.
//
//go:embed units
var Units embed.FS
