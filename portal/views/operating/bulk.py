"""Many rows at once: chosen in a list, looked at beforehand, done one by one (GW28)."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from portal.bulk.deeds import MOST, SORTS
from portal.bulk.work import Work, work_begin, work_go_on, work_keep, work_of, work_preview
from portal.http.actors import actor_of
from portal.pages import labels
from portal.views.actions import form_status
from tenants.rights import require_operator

_STATES = {
    "chosen": labels.State(labels.PASS, "Chosen"),
    "fits": labels.State(labels.WAIT, "Would be done"),
    "refused": labels.State(labels.DENY, "Refused"),
    "done": labels.State(labels.ALLOW, "Done"),
    "failed": labels.State(labels.DENY, "Not done"),
}


@require_POST
@login_required
def begin(request: HttpRequest, sort: str) -> HttpResponse:
    """Take the chosen rows of a list, or all that its filters find, and go to their page. Operators only."""
    actor = actor_of(request)
    require_operator(actor)
    if sort not in SORTS or request.POST.get("deed") not in SORTS[sort].deeds:
        raise Http404
    found = SORTS[sort]
    filters = {name: request.POST.get(name, "")[:128].replace("\0", "") for name in ("q", "status")}
    keys = found.keys(actor, filters) if "all" in request.POST else request.POST.getlist("rows")
    if len(keys) > MOST:
        messages.error(request, f"At most {MOST} at a time: narrow the filter.", extra_tags="deny")
        return redirect(found.url)
    work = work_begin(actor, sort, request.POST["deed"], keys)
    if not work.rows:
        messages.error(request, "Choose at least one row.", extra_tags="deny")
        return redirect(found.url)
    work_keep(request.session, work)
    return redirect("bulk")


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def bulk(request: HttpRequest) -> HttpResponse:
    """What would happen to each row, then what has; ``step`` says what is pressed. Operators only."""
    actor = actor_of(request)
    require_operator(actor)
    work = work_of(request.session)
    if work is None:
        return redirect("overview")
    step = request.POST.get("step", "")
    if step == "preview":
        fields = set(work.what.form().fields) & set(request.POST)
        work.words = {name: str(request.POST[name])[:1024] for name in sorted(fields)}
    form = work.what.form(work.words if step or work.words else None)
    if request.method == "POST" and form.is_valid():
        words, now = form.cleaned_data, timezone.now()
        if step == "preview" and not work.agreed:
            work_preview(work, actor, words, now=now)
        elif step == "retry":
            for row in work.in_state("failed"):
                row.state = "fits"
        if step in {"go", "retry"} and work.in_state("fits"):
            work.agreed = True
            work_go_on(work, request.session, actor, words, now=now)
        work_keep(request.session, work)
        if not getattr(request, "htmx", False):
            return redirect("bulk")
    return render(request, "pages/operating/bulk.html", _context(work, form), status=form_status(request, form))


def _context(work: Work, form: Any) -> dict[str, Any]:
    waiting, done = work.in_state("fits"), work.in_state("done")
    return {
        "work": work,
        "form": form,
        "title": f"{work.what.text}: {len(work.rows)} {work.of.title.lower()}",
        "back": reverse(work.of.url),
        "rows": [{"row": row, "state": _STATES[row.state]} for row in work.rows],
        "previewed": not work.in_state("chosen"),
        "waiting": len(waiting),
        "done": len(done),
        "failed": len(work.in_state("failed")),
        "refused": len(work.in_state("refused")),
        "goes_on": work.agreed and bool(waiting),
    }
