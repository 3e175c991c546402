"""Words for synthetic notes. None of them comes from a real record."""

from __future__ import annotations

DEPARTMENTS = (
    "Cardiology",
    "Oncology",
    "Radiology",
    "General Medicine",
    "OB/GYN",
    "Emergency",
    "Neurology",
    "Orthopedics",
    "Pediatrics",
    "Psychiatry",
    "Nephrology",
    "Pulmonology",
)
AGE_BANDS = ("00-17", "18-39", "40-64", "65-79", "80+")
SEXES = ("female", "male")

# Note type: its sections in order.
SECTIONS = {
    "progress": ("Subjective", "Objective", "Assessment", "Plan"),
    "discharge": (
        "Reason for admission",
        "Hospital course",
        "Discharge condition",
        "Discharge medications",
        "Follow-up",
    ),
    "radiology": ("Indication", "Technique", "Findings", "Impression"),
    "consult": ("Reason for consultation", "History of present illness", "Physical examination", "Recommendations"),
}

COMPLAINTS = (
    "shortness of breath on exertion",
    "intermittent chest tightness",
    "low back pain radiating to the left leg",
    "a productive cough",
    "progressive fatigue",
    "episodes of dizziness when standing",
    "swelling of both ankles",
    "burning epigastric pain after meals",
    "a throbbing headache with photophobia",
    "numbness of the right hand",
)
DIAGNOSES = (
    "hypertension",
    "type 2 diabetes mellitus",
    "chronic kidney disease",
    "atrial fibrillation",
    "community-acquired pneumonia",
    "congestive heart failure",
    "iron deficiency anemia",
    "osteoarthritis of the knee",
    "chronic obstructive pulmonary disease",
    "major depressive disorder",
)
DRUGS = (
    "metoprolol",
    "lisinopril",
    "metformin",
    "furosemide",
    "atorvastatin",
    "apixaban",
    "omeprazole",
    "sertraline",
    "amoxicillin",
    "prednisone",
)
SITES = (
    "right lower lobe",
    "left ventricle",
    "lumbar spine",
    "right knee",
    "abdomen",
    "mediastinum",
    "left kidney",
    "right shoulder",
)

# {complaint} {diagnosis} {drug} {site} are words; {a} is 1-9, {b} 20-99, {c} 100-199, all drawn anew.
HISTORY = (
    "The patient presents with {complaint} that began about {a} days ago.",
    "There is a history of {diagnosis}, treated with {drug} {b} mg daily.",
    "The patient reports {complaint}, worse at night and after climbing {a} flights of stairs.",
    "The patient denies fever, chills, nausea, vomiting and recent travel.",
    "Symptoms improved after the dose of {drug} was raised {a} weeks ago.",
    "There was no loss of consciousness, and no witnessed seizure activity.",
    "The family history is notable for {diagnosis} in a parent at the age of {b}.",
    "The patient lives at home, walks with a cane and needs help with {a} of six daily activities.",
    "On review of systems there is {complaint}; all other systems are negative.",
    "The patient was last seen in clinic {a} months ago for {diagnosis}.",
)
FINDINGS = (
    "Blood pressure is {c}/{b} mmHg, heart rate {b} beats per minute, oxygen saturation 9{a} percent on room air.",
    "Lungs are clear to auscultation bilaterally, without wheezes or crackles.",
    "Heart sounds are regular, with a grade {a}/6 systolic murmur at the apex.",
    "The abdomen is soft and non-tender, with normal bowel sounds.",
    "There is {a}.{b} cm of soft tissue swelling near the {site}.",
    "Laboratory results show sodium {c} mmol/L, creatinine {a}.{b} mg/dL and hemoglobin {a}.{a} g/dL.",
    "The {site} shows no focal abnormality compared with the prior study.",
    "A {a} mm opacity in the {site} is unchanged since the examination {b} days earlier.",
    "Cranial nerves II through XII are intact, and strength is {a}/5 in all limbs.",
    "Electrocardiogram: sinus rhythm at {b}, PR interval {c} ms, no acute ST changes.",
)
ASSESSMENTS = (
    "This is most consistent with {diagnosis}, with {complaint} as the leading symptom.",
    "The differential includes {diagnosis} and, less likely, {diagnosis}.",
    "The {diagnosis} is stable on {drug}.",
    "No evidence of an acute process in the {site}.",
    "Known {diagnosis}, currently compensated, functional class {a}.",
    "The course was uncomplicated, and the patient tolerated {drug} well.",
    "Acute on chronic {diagnosis}, improving after {a} days of treatment.",
    "The risk of readmission is estimated at {b} percent.",
)
PLANS = (
    "Continue {drug} {b} mg by mouth twice a day.",
    "Start {drug} {b} mg once daily and check the level in {a} days.",
    "Repeat imaging of the {site} in {a} months.",
    "Follow up in clinic within {a} weeks, or earlier if {complaint} returns.",
    "Stop {drug} because of {complaint}.",
    "Physical therapy {a} times a week, with weight bearing as tolerated.",
    "The plan was discussed with the patient and family, who agree.",
    "Strict intake and output, daily weights, and a diet with {a} g of sodium.",
    "Consider referral for {diagnosis} if there is no response after {b} days.",
)
KIND_OF_SECTION = {
    "Subjective": HISTORY,
    "Objective": FINDINGS,
    "Assessment": ASSESSMENTS,
    "Plan": PLANS,
    "Reason for admission": HISTORY,
    "Hospital course": ASSESSMENTS,
    "Discharge condition": FINDINGS,
    "Discharge medications": PLANS,
    "Follow-up": PLANS,
    "Indication": HISTORY,
    "Technique": FINDINGS,
    "Findings": FINDINGS,
    "Impression": ASSESSMENTS,
    "Reason for consultation": HISTORY,
    "History of present illness": HISTORY,
    "Physical examination": FINDINGS,
    "Recommendations": PLANS,
}
ABBREVIATIONS = (
    ("The patient", "Pt"),
    ("the patient", "pt"),
    ("a history of", "h/o"),
    ("shortness of breath", "SOB"),
    ("Blood pressure", "BP"),
    ("heart rate", "HR"),
    ("oxygen saturation", "SpO2"),
    ("by mouth", "PO"),
    ("twice a day", "BID"),
    ("once daily", "QD"),
    ("bilaterally", "b/l"),
    ("presents with", "p/w"),
    ("without", "w/o"),
    (" with ", " w/ "),
    ("Follow up", "F/u"),
    ("days", "d"),
    ("weeks", "wks"),
)
