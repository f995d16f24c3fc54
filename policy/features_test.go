package policy

import (
	"testing"
	"time"
)

// A feature or key that takes something away from the run does so, whoever sets
// it, and a requirement's word is the last.
func TestWhatARunOffers(t *testing.T) {
	type offer struct {
		Shell, Terminals, Image, Search bool
		Tier                            string
	}
	all := offer{Shell: true, Terminals: true, Image: true, Tier: "priority"}
	without := func(change func(*offer)) offer { o := all; change(&o); return o }
	for _, c := range []struct {
		name, config, requirements string
		flags                      []Override
		want                       offer
	}{
		{name: "nothing set", want: all},
		{name: "shell", config: "[features]\nshell_tool = false", want: without(func(o *offer) { o.Shell = false })},
		{name: "shell by flag", flags: []Override{{"features.shell_tool", "false", "--disable shell_tool"}}, want: without(func(o *offer) { o.Shell = false })},
		{name: "shell pinned", requirements: "[features]\nshell_tool = false", flags: []Override{{"features.shell_tool", "true", "--enable shell_tool"}},
			want: without(func(o *offer) { o.Shell = false })},
		{name: "terminals", config: "[features]\nunified_exec_tty = false", want: without(func(o *offer) { o.Terminals = false })},
		{name: "images", config: "[features]\nview_image = false", want: without(func(o *offer) { o.Image = false })},
		{name: "images, older name", config: "[features]\nview_image_tool = false", want: without(func(o *offer) { o.Image = false })},
		{name: "images as a tool", config: "[tools]\nview_image = false\n[features]\nview_image = true", want: without(func(o *offer) { o.Image = false })},
		{name: "images pinned by the older name", config: "[features]\nview_image = true", requirements: "[features]\nview_image_tool = false",
			want: without(func(o *offer) { o.Image = false })},
		{name: "tier", config: "[features]\nfast_mode = false", want: without(func(o *offer) { o.Tier = "" })},
		{name: "search, older name", config: "[features]\nweb_search = true", want: without(func(o *offer) { o.Search = true })},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := map[string]string{"home/config.toml": "service_tier = \"fast\"\n" + c.config}
			if c.requirements != "" {
				files["etc/requirements.toml"] = c.requirements
			}
			cfg := load(t, files, func(s *Sources) { s.Overrides = c.flags }).Config()
			got := offer{cfg.Shell, cfg.Terminals, cfg.ViewImage, cfg.WebSearch == "live", cfg.ServiceTier}
			if got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// Keys that bound what the model sees are values, not notices.
func TestWhatTheModelSees(t *testing.T) {
	p := load(t, map[string]string{"home/config.toml": "tool_output_token_limit = 100\nbackground_terminal_max_timeout = 6000\n" +
		"include_environment_context = false\ninclude_permissions_instructions = false\n[skills]\ninclude_instructions = false\n"})
	c := p.Config()
	if c.OutputTokens != 100 || c.PollTimeout != 6*time.Second || !c.NoEnvironmentContext || !c.NoPermissionsText || !c.NoSkillsListing {
		t.Errorf("%+v", c)
	}
	if n := p.Notices(); len(n) != 0 {
		t.Errorf("notices: %+v", n)
	}
}
