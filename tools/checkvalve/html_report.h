// html_report.h: one self-contained page: verdict, influence maps, errors, first leaks, how to reproduce it.
#pragma once

#include <span>
#include <string>

#include "audit_run.h"

namespace checkvalve::cli {

// No script, no external resource: the page can be mailed and opened offline.
[[nodiscard]] std::string html_report(std::span<const DataAudit> sets, const std::string& command_line);

// The content of its <style> element.
extern const char* const kReportStyle;

}  // namespace checkvalve::cli
