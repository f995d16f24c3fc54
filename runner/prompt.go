package runner

import (
	_ "embed" // the model-facing texts
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/nightshift-ci/nightshift/runner/event"
)

//go:embed prompt/base.md
var basePrompt string

//go:embed prompt/compact.md
var compactText string

//go:embed prompt/review.md
var reviewText string

// summaryPrefix begins the message that replaces a compacted history.
const summaryPrefix = "Hand-over from the earlier part of this task, which was removed to save space:\n\n"

func compactPrompt(configured string) string {
	if configured != "" {
		return configured
	}
	return strings.TrimSpace(compactText)
}

// finalAnswerPrompt asks for a summary before a hard stop.
func finalAnswerPrompt(l *LimitError) string {
	return fmt.Sprintf("The run stops now: the limit %s (%s) is reached. No tool can be used any more. "+
		"Say in a few sentences what was done, what was checked, what is still missing, and how to go on.", l.Limit, l.Max)
}

// repairPrompt hands back an answer that breaks the schema.
func repairPrompt(problems []string) string {
	return "Your answer does not fit the required JSON schema:\n- " + strings.Join(problems, "\n- ") +
		"\nAnswer again with one JSON value that fits the schema, and nothing else: no prose, no code fence."
}

// imageParts are the three parts an image takes in the prompt, or one sentence
// when it could not be read.
func imageParts(images []Image) []part {
	var parts []part
	for i, im := range images {
		if im.Err != nil {
			parts = append(parts, textPart(fmt.Sprintf("The image at %s could not be read: %v", im.Path, im.Err)))
			continue
		}
		parts = append(parts,
			textPart(fmt.Sprintf("<image name=[Image #%d] path=%q>", i+1, im.Path)),
			part{Type: "input_image", ImageURL: "data:" + im.MIME + ";base64," + base64.StdEncoding.EncodeToString(im.Data), Detail: "original"},
			textPart("</image>"))
	}
	return parts
}

// verifyFailure hands a failed verification back to the model.
func verifyFailure(v event.VerifyCompleted) string {
	return fmt.Sprintf("The work is not done: the check `%s` ended with exit code %d. Its output:\n\n%s\n\nFind the cause and fix it, then finish again.", v.Command, v.ExitCode, v.Output)
}
